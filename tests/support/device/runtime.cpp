#include <Python.h>

#include "runtime.h"

#include <algorithm>
#include <chrono>

namespace threaded {
namespace {

std::atomic<SyncMode> sync_mode{SyncMode::Allow};
std::mutex counts_mutex;
std::map<std::string, int64_t> counts;

std::mutex captures_mutex;
std::vector<std::shared_ptr<Graph>> captures;

thread_local DeviceIndex this_device = 0;
thread_local std::array<StreamId, kDevices> this_stream{};

void check(DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "threaded:", int(index), ": there are ", int(kDevices), " devices");
}

// Until then, or until somebody wants the device back.
void sleep_until(int64_t end_ns, const std::atomic<bool>& released) {
  constexpr int64_t kLook = 10'000'000;
  for (auto now = now_ns(); now < end_ns && !released; now = now_ns())
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point(
        std::chrono::nanoseconds(std::min(end_ns, now + kLook))));
}

// As on CUDA: what may not be done in a capture ends every capture that is open, but those that
// are another thread's alone.
void refuse_in_capture() {
  std::lock_guard<std::mutex> lock(captures_mutex);
  bool refused = false;
  for (auto& graph : captures)
    if (!graph->of_thread || graph->thread == std::this_thread::get_id())
      refused = graph->broken = true;
  TORCH_CHECK(!refused, "threaded: operation not permitted when stream is capturing");
}

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void before_query() { refuse_in_capture(); }

void before_wait(const std::string& kind) {
  refuse_in_capture();
  {
    std::lock_guard<std::mutex> lock(counts_mutex);
    ++counts[kind];
  }
  TORCH_CHECK(sync_mode != SyncMode::Raise, "threaded: a synchronisation (", kind, ")");
}

void set_sync_mode(SyncMode mode) { sync_mode = mode; }

std::map<std::string, int64_t> sync_counts() {
  std::lock_guard<std::mutex> lock(counts_mutex);
  return counts;
}

void reset_sync_counts() {
  std::lock_guard<std::mutex> lock(counts_mutex);
  counts.clear();
}

WithoutInterpreterLock::WithoutInterpreterLock()
    : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutInterpreterLock::~WithoutInterpreterLock() {
  if (state_) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

// ---- devices and what is current -------------------------------------------------------------

Device& device(DeviceIndex index) {
  // Never destroyed: threads outlive the statics of this library.
  static auto* devices = [] {
    auto* made = new std::array<Device, kDevices>;
    for (DeviceIndex i = 0; i < kDevices; ++i)
      for (StreamId id = 0; id < kStreams; ++id)
        (*made)[i].queues[id] = std::make_unique<Queue>(i, id);
    return made;
  }();
  check(index);
  return (*devices)[index];
}

Queue& queue(DeviceIndex index, StreamId id) {
  TORCH_CHECK(id >= 0 && id < kStreams, "threaded: there is no stream ", id);
  return *device(index).queues[id];
}

Queue& current_queue(DeviceIndex index) { return queue(index, current_stream(index)); }

DeviceIndex current_device() { return this_device; }

void set_current_device(DeviceIndex index) {
  check(index);
  this_device = index;
}

StreamId current_stream(DeviceIndex index) {
  check(index);
  return this_stream[index];
}

void set_current_stream(DeviceIndex index, StreamId id) {
  check(index);
  this_stream[index] = id;
}

StreamId stream_of_pool(DeviceIndex index) {
  return 1 + device(index).next_stream++ % (kStreams - 1);
}

void throw_if_failed(DeviceIndex index) {
  auto& self = device(index);
  if (!self.failed) return;
  std::lock_guard<std::mutex> lock(self.mutex);
  TORCH_CHECK(false, "threaded error: ", self.error);
}

void wait_for_device(DeviceIndex index) {
  for (auto& queue : device(index).queues) queue->wait();
}

void drain_everything() noexcept {
  for (DeviceIndex index = 0; index < kDevices; ++index) wait_for_device(index);
}

// ---- streams ---------------------------------------------------------------------------------

void Queue::launch(Task task) {
  throw_if_failed(device_);
  auto& self = threaded::device(device_);
  int64_t launch_ns = 0, depth = 0;
  {
    std::lock_guard<std::mutex> lock(self.mutex);
    const auto& plants = self.plants;
    launch_ns = plants.launch_ns;
    depth = plants.queue_depth;
    auto by_operator = plants.operator_ns.find(task.name);
    if (by_operator != plants.operator_ns.end())
      task.least_ns = std::max(task.least_ns, by_operator->second);
    auto by_stream = plants.stream_ns.find(id_);
    if (by_stream != plants.stream_ns.end())
      task.least_ns = std::max(task.least_ns, by_stream->second);
    if (plants.page_bytes > 0 && self.used_bytes > plants.page_bytes)
      task.least_ns = std::max(task.least_ns, plants.page_ns);
    auto error = self.plants.errors.find(task.name);
    if (error != self.plants.errors.end()) {
      task.run = [message = error->second] { TORCH_CHECK(false, message); };
      self.plants.errors.erase(error);
    }
  }
  // The host computes while it launches: it does not sleep.
  for (const auto end = now_ns() + launch_ns; now_ns() < end;) {
  }
  if (depth > 0) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (int64_t(tasks_.size()) >= depth) {
      WithoutInterpreterLock unlocked;
      finished_.wait(lock, [&] { return int64_t(tasks_.size()) < depth; });
      lock.unlock();
    }
  }
  push(std::move(task));
}

void Queue::push(Task task) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (graph_) {
    graph_->tasks.push_back(std::move(task));
    return;
  }
  if (!started_) {
    started_ = true;
    std::thread([this] { work(); }).detach();
  }
  tasks_.push_back(std::move(task));
  ++pushed_;
  arrived_.notify_one();
}

void Queue::work() {
  for (;;) {
    Task task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [&] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    run(task);
    task = Task();  // what it kept goes before anybody hears that it is done
    std::lock_guard<std::mutex> lock(mutex_);
    ++done_;
    finished_.notify_all();
  }
}

void Queue::run(Task& task) {
  auto& self = threaded::device(device_);
  if (self.failed && !task.always) return;
  std::unique_lock<std::mutex> engine;
  if (task.engine) engine = std::unique_lock<std::mutex>(*task.engine);
  const auto begin = now_ns();
  try {
    task.run();
  } catch (const std::exception& error) {
    std::lock_guard<std::mutex> lock(self.mutex);
    if (!self.failed) self.error = task.name + ": " + error.what();
    self.failed = true;
  }
  if (task.least_ns > 0) sleep_until(begin + task.least_ns, self.released);
  std::lock_guard<std::mutex> lock(self.mutex);
  if (self.recording && !task.always)
    self.spans.push_back({task.name, id_, begin, now_ns()});
}

bool Queue::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ == pushed_;
}

void Queue::wait() {
  if (idle()) return;
  WithoutInterpreterLock unlocked;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto until = pushed_;
  finished_.wait(lock, [&] { return done_ >= until; });
}

void Queue::join(std::shared_ptr<Graph> graph) {
  std::lock_guard<std::mutex> lock(mutex_);
  graph_ = std::move(graph);
}

std::shared_ptr<Graph> Queue::graph() {
  std::lock_guard<std::mutex> lock(mutex_);
  return graph_;
}

// ---- events ----------------------------------------------------------------------------------

void Event::record(const std::shared_ptr<Event>& event, Queue& queue) {
  uint64_t version = 0;
  {
    std::lock_guard<std::mutex> lock(event->mutex_);
    event->graph_ = queue.graph();
    if (event->graph_) return;  // the order of what is captured is its order in the graph
    version = ++event->recorded_;
  }
  queue.push({"event", [event, version] { event->mark(version); }, 0, true});
}

void Event::block(const std::shared_ptr<Event>& event, Queue& queue) {
  uint64_t version = 0;
  {
    std::lock_guard<std::mutex> lock(event->mutex_);
    if (event->graph_) {
      if (!queue.graph()) queue.join(event->graph_);
      return;
    }
    version = event->recorded_;
  }
  if (version > 0) queue.push({"wait", [event, version] { event->await(version); }, 0, true});
}

void Event::mark(uint64_t version) {
  std::lock_guard<std::mutex> lock(mutex_);
  completed_ = std::max(completed_, version);
  if (version == recorded_) time_ns_ = now_ns();
  marked_.notify_all();
}

void Event::await(uint64_t version) {
  std::unique_lock<std::mutex> lock(mutex_);
  marked_.wait(lock, [&] { return completed_ >= version; });
}

bool Event::query() {
  before_query();
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!graph_, "threaded: an event of a capture has no state to query");
  return completed_ == recorded_;
}

bool Event::passed() {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_ == recorded_;
}

void Event::wait() {
  before_wait("event");
  WithoutInterpreterLock unlocked;
  std::unique_lock<std::mutex> lock(mutex_);
  TORCH_CHECK(!graph_, "threaded: an event of a capture cannot be waited for");
  const auto version = recorded_;
  marked_.wait(lock, [&] { return completed_ >= version; });
}

double Event::elapsed_ms(Event& from, Event& to) {
  before_query();
  int64_t times[2];
  Event* pair[] = {&from, &to};
  for (int i = 0; i < 2; ++i) {
    std::lock_guard<std::mutex> lock(pair[i]->mutex_);
    TORCH_CHECK(pair[i]->timed_, "threaded: both events must be made with enable_timing=True");
    TORCH_CHECK(!pair[i]->graph_ && pair[i]->recorded_ > 0, "threaded: both events must be recorded");
    TORCH_CHECK(pair[i]->completed_ == pair[i]->recorded_, "threaded: device not ready");
    times[i] = pair[i]->time_ns_;
  }
  return double(times[1] - times[0]) / 1e6;
}

// ---- captures --------------------------------------------------------------------------------

void begin_capture(DeviceIndex index, bool of_thread) {
  auto& queue = current_queue(index);
  TORCH_CHECK(queue.id() != 0, "threaded: the default stream cannot capture");
  TORCH_CHECK(!queue.graph(), "threaded: this stream is capturing");
  auto graph = std::make_shared<Graph>();
  graph->of_thread = of_thread;
  queue.join(graph);
  std::lock_guard<std::mutex> lock(captures_mutex);
  captures.push_back(graph);
}

std::shared_ptr<Graph> end_capture(DeviceIndex index) {
  auto graph = current_queue(index).graph();
  TORCH_CHECK(graph, "threaded: this stream is not capturing");
  for (DeviceIndex i = 0; i < kDevices; ++i)
    for (auto& queue : device(i).queues)
      if (queue->graph() == graph) queue->join(nullptr);
  {
    std::lock_guard<std::mutex> lock(captures_mutex);
    captures.erase(std::find(captures.begin(), captures.end(), graph));
  }
  TORCH_CHECK(!graph->broken, "threaded: operation failed due to a previous error during capture");
  return graph;
}

void replay(const std::shared_ptr<Graph>& graph, DeviceIndex index) {
  // One launch, whatever is in it; the graph lives until it has run.
  auto& self = device(index);
  current_queue(index).launch({"graph", [graph, &self] {
    for (auto& task : graph->tasks) {
      const auto begin = now_ns();
      task.run();
      if (task.least_ns > 0) sleep_until(begin + task.least_ns, self.released);
    }
  }});
}

}  // namespace threaded
