"""Double DQN on a small grid world with moving food and walls."""
import json
import random
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 3
SIZE = 9
GAMMA = 0.97
BATCH = 192
UPDATES = 450
ENV_STEPS_PER_UPDATE = 2
WARMUP = 1000
TARGET_SYNC = 50

Transition = namedtuple("Transition", "state action reward next_state done")


class GridWorld:
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, rng):
        self.rng = rng
        self.walls = np.zeros((SIZE, SIZE), dtype=np.float32)
        self.walls[2, 2:6] = 1
        self.walls[6, 3:8] = 1
        self.reset()

    def _free(self):
        while True:
            r, c = self.rng.integers(0, SIZE, 2)
            if not self.walls[r, c]:
                return int(r), int(c)

    def _obs(self):
        planes = np.zeros((3, SIZE, SIZE), dtype=np.float32)
        planes[0] = self.walls
        planes[1][self.agent] = 1
        planes[2][self.food] = 1
        return planes.reshape(-1)

    def reset(self):
        self.agent, self.food, self.t = self._free(), self._free(), 0
        return self._obs()

    def step(self, action):
        self.t += 1
        r = min(max(self.agent[0] + self.MOVES[action][0], 0), SIZE - 1)
        c = min(max(self.agent[1] + self.MOVES[action][1], 0), SIZE - 1)
        if not self.walls[r, c]:
            self.agent = (r, c)
        if self.agent == self.food:
            return self._obs(), 1.0, True
        return self._obs(), -0.01, self.t >= 60


class ReplayBuffer:
    def __init__(self, capacity=20_000):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.memory, n)))
        return (
            torch.from_numpy(np.stack(batch.state)),
            torch.tensor(batch.action),
            torch.tensor(batch.reward),
            torch.from_numpy(np.stack(batch.next_state)),
            torch.tensor(batch.done, dtype=torch.float32),
        )


def build_net():
    return nn.Sequential(
        nn.Linear(3 * SIZE * SIZE, 512), nn.ReLU(),
        nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 4),
    )


def main():
    random.seed(SEED)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env, buffer = GridWorld(rng), ReplayBuffer()
    policy, target = build_net(), build_net()
    target.load_state_dict(policy.state_dict())
    target.requires_grad_(False)
    opt = torch.optim.Adam(policy.parameters(), lr=5e-4)

    state = env.reset()
    for _ in range(WARMUP):
        action = int(rng.integers(4))
        nxt, reward, done = env.step(action)
        buffer.push(state, action, reward, nxt, done)
        state = env.reset() if done else nxt

    losses, rewards = [], deque(maxlen=500)
    start = time.perf_counter()
    for update in range(1, UPDATES + 1):
        eps = max(0.05, 1.0 - update / 300)
        for _ in range(ENV_STEPS_PER_UPDATE):
            if rng.random() < eps:
                action = int(rng.integers(4))
            else:
                with torch.no_grad():
                    action = int(policy(torch.from_numpy(state)).argmax())
            nxt, reward, done = env.step(action)
            buffer.push(state, action, reward, nxt, done)
            rewards.append(reward)
            state = env.reset() if done else nxt

        s, a, r, s2, d = buffer.sample(BATCH)
        with torch.no_grad():
            best = policy(s2).argmax(1, keepdim=True)
            q_next = target(s2).gather(1, best).squeeze(1)
            goal = r + GAMMA * (1 - d) * q_next
        q = policy(s).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())

        if update % TARGET_SYNC == 0:
            target.load_state_dict(policy.state_dict())
        if update == 20:
            t20 = time.perf_counter()
        if update % 100 == 0:
            print(f"update {update} loss {np.mean(losses[-100:]):.5f} reward {np.mean(rewards):.4f}")
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20) / (UPDATES - 20),
        "fit_s": end - start,
        "loss": float(np.mean(losses[-50:])),
    }))


if __name__ == "__main__":
    main()
