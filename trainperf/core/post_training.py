"""Names of the phases that a post-training has beside forward, backward and the update.

They are no columns of a step: the loop of a run has them or has not.  A loop of one's own, an
adapter and an importer use the same ones, so that the same advice follows.
"""

ROLLOUT = "rollout"
"""The policy generates answers."""

REWARD = "reward"
"""Answers are judged; `reward: NAME` is one function of several."""

LOG_PROBABILITIES = "log_probabilities"
"""Answers are weighed by the policy, or by a reference, without gradients."""

UPDATE = "update"
"""Forward, backward and optimizer, where nobody tells them apart."""

WEIGHT_TRANSFER = "weight_transfer"
"""The engine that generates is given the weights."""

ENVIRONMENT = "environment"
"""Tools are called, or a world answers."""
