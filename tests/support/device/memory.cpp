#include "memory.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <tuple>
#include <unordered_map>

namespace threaded {

struct Segment {
  char* base;
  size_t size;
  bool large;
};

// A part of a segment. It belongs to one stream, in whose order it is used, freed and used again.
struct Block {
  DeviceIndex device;
  StreamId stream;
  std::shared_ptr<Segment> segment;
  char* pointer;
  size_t size, requested = 0;
  bool used = false;
  Block *before = nullptr, *after = nullptr;
  std::set<StreamId> users;  // other streams, told by record_stream
  std::weak_ptr<Graph> graph;
};

namespace {

using namespace c10::CachingDeviceAllocator;

constexpr int kPoison = 0xFF;  // a NaN in every floating type, -1 in every signed one
constexpr size_t kMiB = 1 << 20;
constexpr size_t kLarge = kMiB;  // as on CUDA: above it a block has a pool of its own

std::atomic<bool> forked{false};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->size, a->pointer) < std::tie(b->size, b->pointer);
  }
};

size_t rounded(size_t size, size_t step) { return (size + step - 1) / step * step; }

void poison(Block* block) {
  auto* pointer = block->pointer;
  const auto size = block->size;
  queue(block->device, block->stream)
      .push({"poison", [pointer, size] { std::memset(pointer, kPoison, size); }, 0, true});
}

class Cache {
 public:
  explicit Cache(DeviceIndex index) : index_(index) {}

  Block* allocate(size_t size, StreamId stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    collect();
    const auto requested = size;
    size = rounded(std::max<size_t>(size, 1), 512);
    auto* block = take(size, stream);
    if (!block) block = reserve(size, stream);
    split(block, size);
    block->used = true;
    block->requested = requested;
    block->graph = queue(index_, stream).graph();
    blocks_[block->pointer] = block;
    count(stats_.allocation, block, 1);
    count(stats_.allocated_bytes, block, block->size);
    device(index_).used_bytes = stats_.allocated_bytes[0].current;
    count(stats_.requested_bytes, block, block->requested);
    count(stats_.active, block, 1);
    count(stats_.active_bytes, block, block->size);
    return block;
  }

  void free(Block* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    discount(stats_.allocation, block, 1);
    discount(stats_.allocated_bytes, block, block->size);
    device(index_).used_bytes = stats_.allocated_bytes[0].current;
    discount(stats_.requested_bytes, block, block->requested);
    auto graph = block->graph.lock();
    if (!graph) graph = queue(index_, block->stream).graph();  // no poison becomes part of a graph
    if (graph) {
      graph->held.push_back(block);
    } else if (block->users.empty()) {
      release(block);
    } else {
      await_users(block);
    }
  }

  void free_held(Block* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    release(block);
  }

  void record(Block* block, StreamId stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stream != block->stream) block->users.insert(stream);
  }

  void empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    collect();
    give_back();
  }

  void limit(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = bytes;
  }

  DeviceStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    collect();
    // Of free parts of split segments the peak is that of the moments when it was asked for.
    for (auto* of : {&stats_.inactive_split, &stats_.inactive_split_bytes})
      for (auto& stat : *of) stat.decrease(stat.current);
    for (auto& pool : free_)
      for (auto* block : pool.second)
        if (block->before || block->after) {
          count(stats_.inactive_split, block, 1);
          count(stats_.inactive_split_bytes, block, block->size);
        }
    return stats_;
  }

  template <typename Change>
  void each_stat(Change change) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto* of :
         {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
          &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
          &stats_.inactive_split_bytes, &stats_.requested_bytes})
      for (auto& stat : *of) change(stat);
  }

  void forget_counts() {
    each_stat([](auto& stat) { stat.allocated = stat.freed = 0; });
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.num_alloc_retries = stats_.num_ooms = 0;
  }

  std::pair<size_t, size_t> info() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {limit_ > reserved_ ? limit_ - reserved_ : 0, limit_};
  }

  bool holds(const void* pointer) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = segments_.upper_bound(static_cast<const char*>(pointer));
    if (next == segments_.begin()) return false;
    const auto& segment = *std::prev(next)->second;
    return pointer < segment.base + segment.size;
  }

 private:
  // Every pair of counters: all memory, and the pool of the block.
  static void count(StatArray& of, const Block* block, size_t amount) {
    of[0].increase(amount);
    of[block->segment->large ? 2 : 1].increase(amount);
  }

  static void discount(StatArray& of, const Block* block, size_t amount) {
    of[0].decrease(amount);
    of[block->segment->large ? 2 : 1].decrease(amount);
  }

  Block* take(size_t size, StreamId stream) {
    auto& pool = free_[{stream, size > kLarge}];
    Block wanted{index_, stream, nullptr, nullptr, size};
    auto best = pool.lower_bound(&wanted);
    if (best == pool.end()) return nullptr;
    auto* block = *best;
    pool.erase(best);
    return block;
  }

  Block* reserve(size_t size, StreamId stream) {
    const bool large = size > kLarge;
    const auto bytes = !large ? 2 * kMiB : size < 10 * kMiB ? 20 * kMiB : rounded(size, 2 * kMiB);
    if (reserved_ + bytes > limit_) {
      ++stats_.num_alloc_retries;
      wait_for_device(index_);
      collect();
      if (auto* block = take(size, stream)) return block;
      give_back();
    }
    if (reserved_ + bytes > limit_) {
      ++stats_.num_ooms;
      TORCH_CHECK_WITH(
          OutOfMemoryError, false, "threaded out of memory. Tried to allocate ", size,
          " bytes. Device ", int(index_), " has a capacity of ", limit_, " bytes of which ",
          reserved_, " are reserved.");
    }
    auto* base = static_cast<char*>(std::aligned_alloc(4096, bytes));
    TORCH_CHECK(base, "threaded: the host has no memory left");
    auto segment = std::make_shared<Segment>(Segment{base, bytes, large});
    segments_[base] = segment;
    reserved_ += bytes;
    auto* block = new Block{index_, stream, segment, base, bytes};
    count(stats_.segment, block, 1);
    count(stats_.reserved_bytes, block, bytes);
    return block;
  }

  void split(Block* block, size_t size) {
    const auto rest = block->size - size;
    if (rest < (block->segment->large ? kLarge + 1 : 512)) return;
    auto* second = new Block{index_, block->stream, block->segment, block->pointer + size, rest};
    second->before = block;
    second->after = block->after;
    if (second->after) second->after->before = second;
    block->after = second;
    block->size = size;
    free_[{block->stream, block->segment->large}].insert(second);
  }

  void await_users(Block* block) {
    std::vector<std::shared_ptr<Event>> events;
    for (auto id : block->users) {
      events.push_back(std::make_shared<Event>(false));
      Event::record(events.back(), queue(index_, id));
    }
    waiting_.emplace_back(block, std::move(events));
  }

  void collect() {
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      auto& events = entry->second;
      while (!events.empty() && events.back()->passed()) events.pop_back();
      if (events.empty()) {
        release(entry->first);
        entry = waiting_.erase(entry);
      } else {
        ++entry;
      }
    }
  }

  // The block may be used again: behind the poison, in the order of its stream.
  void release(Block* block) {
    discount(stats_.active, block, 1);
    discount(stats_.active_bytes, block, block->size);
    blocks_.erase(block->pointer);
    block->used = false;
    block->users.clear();
    block->graph.reset();
    poison(block);
    if (mergeable(block->before)) block = merged(block->before, block);
    if (mergeable(block->after)) block = merged(block, block->after);
    free_[{block->stream, block->segment->large}].insert(block);
  }

  bool mergeable(Block* block) {
    return block && free_[{block->stream, block->segment->large}].erase(block) > 0;
  }

  static Block* merged(Block* first, Block* second) {
    first->size += second->size;
    first->after = second->after;
    if (first->after) first->after->before = first;
    delete second;
    return first;
  }

  void give_back() {
    wait_for_device(index_);
    for (auto& pool : free_)
      for (auto entry = pool.second.begin(); entry != pool.second.end();) {
        auto* block = *entry;
        if (block->before || block->after) {
          ++entry;
          continue;
        }
        discount(stats_.segment, block, 1);
        discount(stats_.reserved_bytes, block, block->size);
        reserved_ -= block->size;
        segments_.erase(block->pointer);
        std::free(block->pointer);
        entry = pool.second.erase(entry);
        delete block;
      }
  }

  const DeviceIndex index_;
  std::mutex mutex_;
  size_t limit_ = size_t(4) << 30, reserved_ = 0;
  DeviceStats stats_{};
  std::map<std::pair<StreamId, bool>, std::set<Block*, BySize>> free_;
  std::map<const char*, std::shared_ptr<Segment>> segments_;
  std::unordered_map<const void*, Block*> blocks_;
  std::vector<std::pair<Block*, std::vector<std::shared_ptr<Event>>>> waiting_;
};

Cache& cache(DeviceIndex index) {
  static auto* caches = [] {
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    return new std::array<Cache, kDevices>{Cache(0), Cache(1)};
  }();
  return (*caches)[index];
}

void free_block(void* context) {
  // A forked process has no streams: its copy of the memory goes with it.
  if (!context || forked) return;
  auto* block = static_cast<Block*>(context);
  cache(block->device).free(block);
}

#if THREADED_TORCH >= 209
using AllocatorBase = c10::DeviceAllocator;
#else
using AllocatorBase = c10::Allocator;
#endif

struct DeviceMemory final : AllocatorBase {
  c10::DataPtr allocate(size_t size) override {
    TORCH_CHECK(!forked, "threaded: cannot be used in a forked process");
    const auto index = current_device();
    const c10::Device place(c10::DeviceType::PrivateUse1, index);
    if (size == 0) return {nullptr, nullptr, &free_block, place};
    auto* block = cache(index).allocate(size, current_stream(index));
    return {block->pointer, block, &free_block, place};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* to, const void* from, size_t size) const override {
    current_queue(current_device()).launch({"memcpy", [=] { std::memcpy(to, from, size); }});
  }

#if THREADED_TORCH >= 209
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (DeviceIndex index = 0; index < kDevices; ++index) empty_cache(index);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_stream(data, stream.id());
  }
  DeviceStats getDeviceStats(DeviceIndex index) override { return memory_stats(index); }
  void resetAccumulatedStats(DeviceIndex index) override { reset_accumulated_stats(index); }
  void resetPeakStats(DeviceIndex index) override { reset_peak_stats(index); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex index) { return memory_info(index); }
#endif
};

// ---- pinned memory ---------------------------------------------------------------------------

struct Pinned {
  explicit Pinned(size_t bytes) : size(bytes), base(static_cast<char*>(std::malloc(bytes))) {}
  ~Pinned();
  size_t size;
  char* base;
};

std::mutex pinned_mutex;
std::map<const char*, std::weak_ptr<Pinned>> pinned;

Pinned::~Pinned() {
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.erase(base);
  }
  std::memset(base, kPoison, size);
  std::free(base);
}

void free_pinned(void* context) {
  if (!forked) delete static_cast<std::shared_ptr<Pinned>*>(context);
}

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &free_pinned, c10::Device(c10::DeviceType::CPU)};
    auto* block = new std::shared_ptr<Pinned>(std::make_shared<Pinned>(size));
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned[(*block)->base] = *block;
    return {(*block)->base, block, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
};

}  // namespace

// Blocks of a graph go back when nobody can replay it any more.
Graph::~Graph() {
  for (auto* block : held) cache(block->device).free_held(block);
}

c10::Allocator* device_allocator() {
  static auto* allocator = new DeviceMemory;
  return allocator;
}

c10::Allocator* pinned_allocator() {
  static auto* allocator = new PinnedMemory;
  return allocator;
}

void record_stream(const c10::DataPtr& data, StreamId stream) {
  if (auto* block = data.cast_context<Block>(&free_block)) cache(block->device).record(block, stream);
}

std::shared_ptr<void> pinned_block(const void* pointer) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  auto next = pinned.upper_bound(static_cast<const char*>(pointer));
  if (next == pinned.begin()) return nullptr;
  auto block = std::prev(next)->second.lock();
  return block && pointer < block->base + block->size ? block : nullptr;
}

DeviceIndex device_of(const void* pointer) {
  for (DeviceIndex index = 0; index < kDevices; ++index)
    if (cache(index).holds(pointer)) return index;
  TORCH_CHECK(false, "threaded: this memory is not of a device");
}

DeviceStats memory_stats(DeviceIndex index) { return cache(index).stats(); }
void reset_accumulated_stats(DeviceIndex index) { cache(index).forget_counts(); }
void reset_peak_stats(DeviceIndex index) {
  cache(index).each_stat([](auto& stat) { stat.peak = stat.current; });
}
void empty_cache(DeviceIndex index) { cache(index).empty(); }
void set_memory_limit(DeviceIndex index, size_t bytes) { cache(index).limit(bytes); }
std::pair<size_t, size_t> memory_info(DeviceIndex index) { return cache(index).info(); }

}  // namespace threaded
