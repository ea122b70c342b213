// Streams that are threads, events with times, captured graphs and what is planted in them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// The minor version of torch 2, as the headers name it.
#define THREADED_TORCH (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

namespace threaded {

using c10::DeviceIndex;
using c10::StreamId;

constexpr DeviceIndex kDevices = 2;
constexpr StreamId kStreams = 33;  // the default stream and a pool of 32, as on CUDA

int64_t now_ns();

// A synchronising call: counted by *kind*, refused in a capture and where the mode says so.
void before_wait(const std::string& kind);

// A query: refused in a capture, which it breaks.
void before_query();

enum class SyncMode { Allow, Raise };
void set_sync_mode(SyncMode mode);
std::map<std::string, int64_t> sync_counts();
void reset_sync_counts();

// Gives the interpreter lock away for as long as a host thread waits, where it holds it.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock();
  ~WithoutInterpreterLock();
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  void* state_;
};

struct Task {
  std::string name;
  std::function<void()> run;
  int64_t least_ns = 0;     // the kernel lasts this long, or longer where its work does
  bool always = false;      // runs on a failed device as well: event marks and clean-up
  std::mutex* engine = nullptr;  // a copy engine, which does one thing at a time
};

struct Block;

// What a capture recorded, in an order that respects every wait between its streams.
struct Graph {
  std::vector<Task> tasks;
  const std::thread::id thread = std::this_thread::get_id();
  bool of_thread = false;    // only what its own thread does can end the capture
  std::vector<Block*> held;  // freed in the capture or after it, reused by nobody
  std::atomic<bool> broken{false};
  ~Graph();
};

class Queue {
 public:
  Queue(DeviceIndex device, StreamId id) : device_(device), id_(id) {}

  // A launch: costs the host what is planted, waits where the queue is full, fails on a failed device.
  void launch(Task task);
  // The same without cost or failure, for the runtime's own marks.
  void push(Task task);
  bool idle();
  void wait();

  void join(std::shared_ptr<Graph> graph);
  std::shared_ptr<Graph> graph();

  DeviceIndex device() const { return device_; }
  StreamId id() const { return id_; }

 private:
  void work();
  void run(Task& task);

  const DeviceIndex device_;
  const StreamId id_;
  std::mutex mutex_;
  std::condition_variable arrived_, finished_;
  std::deque<Task> tasks_;
  uint64_t pushed_ = 0, done_ = 0;
  bool started_ = false;
  std::shared_ptr<Graph> graph_;
};

struct Plants {
  std::map<std::string, int64_t> operator_ns;
  std::map<StreamId, int64_t> stream_ns;
  std::map<std::string, std::string> errors;  // operator: message; once
  int64_t copy_bytes_per_s = 0, copy_latency_ns = 0;
  int64_t launch_ns = 0, queue_depth = 0;
  int64_t page_bytes = 0, page_ns = 0;  // 0 bytes: it never pages
};

struct Span {
  std::string name;
  StreamId stream;
  int64_t begin_ns, end_ns;
};

struct Device {
  std::array<std::unique_ptr<Queue>, kStreams> queues;
  std::atomic<StreamId> next_stream{0};
  std::mutex mutex;  // of all below
  Plants plants;
  std::string error;
  std::atomic<bool> failed{false};
  std::atomic<bool> released{false};  // planted delays end at once
  std::atomic<int64_t> used_bytes{0};  // by tensors, on the host's clock
  bool recording = false;
  std::vector<Span> spans;
  std::mutex engines[2];  // to the device, from it
};

Device& device(DeviceIndex index);
Queue& queue(DeviceIndex index, StreamId id);
Queue& current_queue(DeviceIndex index);
void throw_if_failed(DeviceIndex index);
void wait_for_device(DeviceIndex index);
void drain_everything() noexcept;

DeviceIndex current_device();
void set_current_device(DeviceIndex index);
StreamId current_stream(DeviceIndex index);
void set_current_stream(DeviceIndex index, StreamId id);
StreamId stream_of_pool(DeviceIndex index);

class Event {
 public:
  explicit Event(bool timed) : timed_(timed) {}
  static void record(const std::shared_ptr<Event>& event, Queue& queue);
  static void block(const std::shared_ptr<Event>& event, Queue& queue);
  bool query();
  bool passed();  // the same for the runtime, which may ask in a capture
  void wait();
  static double elapsed_ms(Event& from, Event& to);

 private:
  void mark(uint64_t version);
  void await(uint64_t version);

  const bool timed_;
  std::mutex mutex_;
  std::condition_variable marked_;
  uint64_t recorded_ = 0, completed_ = 0;
  int64_t time_ns_ = 0;
  std::shared_ptr<Graph> graph_;
};

// Of a thread: what other threads do meanwhile does not end the capture (CUDA's `thread_local`).
void begin_capture(DeviceIndex index, bool of_thread);
std::shared_ptr<Graph> end_capture(DeviceIndex index);
void replay(const std::shared_ptr<Graph>& graph, DeviceIndex index);

}  // namespace threaded
