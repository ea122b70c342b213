// How PyTorch finds the device: guard, hooks, generators; and what Python sees of it.
#include <torch/extension.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "memory.h"
#include "operators.h"

namespace threaded {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

using EventPointer = std::shared_ptr<Event>;

EventPointer& event_of(void* event) { return *static_cast<EventPointer*>(event); }

Queue& queue_of(const c10::Stream& stream) { return queue(stream.device_index(), stream.id()); }

// ---- generators -------------------------------------------------------------------------------

struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(DeviceIndex index) {
    device_ = c10::Device(kType, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }

 private:
  at::CPUGeneratorImpl* clone_impl() const override {
    auto* copy = new Generator(device_.index());
    copy->set_state(*get_state());
    return copy;
  }
};

// ---- guard ------------------------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kDevices) set_current_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream stream(c10::Device device, StreamId id) const {
    const auto index = device.has_index() ? device.index() : current_device();
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id);
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return stream(device, current_stream(device.has_index() ? device.index() : current_device()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream(device, stream_of_pool(device.has_index() ? device.index() : current_device()));
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const auto before = getStream(stream.device());
    set_current_stream(stream.device_index(), stream.id());
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    before_query();
    throw_if_failed(stream.device_index());
    return queue_of(stream).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    before_wait("stream");
    queue_of(stream).wait();
    throw_if_failed(stream.device_index());
  }
  bool isStreamCapturing(const c10::Stream& stream) const { return bool(queue_of(stream).graph()); }
  void synchronizeDevice(const DeviceIndex index) const {
    before_wait("device");
    const auto place = index < 0 ? current_device() : index;
    wait_for_device(place);
    throw_if_failed(place);
  }

  void record(
      void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag flag) const override {
    throw_if_failed(stream.device_index());
    if (!*event)
      *event = new EventPointer(std::make_shared<Event>(flag == c10::EventFlag::BACKEND_DEFAULT));
    Event::record(event_of(*event), queue_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) Event::block(event_of(event), queue_of(stream));
  }
  bool queryEvent(void* event) const override { return !event || event_of(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event) event_of(event)->wait();
  }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    TORCH_CHECK(from && to, "threaded: both events must be recorded");
    return Event::elapsed_ms(*event_of(from), *event_of(to));
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<EventPointer*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream.id());
  }
#if THREADED_TORCH >= 210
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
#endif
};

// ---- hooks ------------------------------------------------------------------------------------

// Without `override`, since the interface grew from release to release.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const { return true; }
  bool isAvailable() const { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  void init() const {}
  DeviceIndex deviceCount() const { return kDevices; }
  void setCurrentDevice(DeviceIndex index) const { set_current_device(index); }
  DeviceIndex getCurrentDevice() const { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex index) const {
    const auto before = current_device();
    set_current_device(index);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const {
    return index < 0 ? current_device() : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* pointer) const { return bool(pinned_block(pointer)); }
  c10::Allocator* getPinnedMemoryAllocator() const { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* pointer) const { return {kType, device_of(pointer)}; }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const {
    return default_generator(index < 0 ? current_device() : index);
  }
  at::Generator getNewGenerator(DeviceIndex index) const {
    return new_generator(index < 0 ? current_device() : index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const {
    resize_storage(storage, bytes);
  }
};

void attach() {
  static Guard guard;
  static Hooks hooks;
  static c10::impl::DeviceGuardImplRegistrar registrar(kType, &guard);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(kType, device_allocator());
  register_operators();
}

// ---- Python -----------------------------------------------------------------------------------

py::dict stats_of(DeviceIndex index) {
  const auto stats = memory_stats(index);
  py::dict flat;
  const std::pair<const char*, const c10::CachingDeviceAllocator::StatArray*> named[] = {
      {"allocation", &stats.allocation},
      {"segment", &stats.segment},
      {"active", &stats.active},
      {"inactive_split", &stats.inactive_split},
      {"allocated_bytes", &stats.allocated_bytes},
      {"reserved_bytes", &stats.reserved_bytes},
      {"active_bytes", &stats.active_bytes},
      {"inactive_split_bytes", &stats.inactive_split_bytes},
      {"requested_bytes", &stats.requested_bytes}};
  const char* pools[] = {"all", "small_pool", "large_pool"};
  for (const auto& [name, array] : named)
    for (int pool = 0; pool < 3; ++pool) {
      const auto& stat = (*array)[pool];
      const auto key = std::string(name) + "." + pools[pool] + ".";
      flat[py::str(key + "current")] = stat.current;
      flat[py::str(key + "peak")] = stat.peak;
      flat[py::str(key + "allocated")] = stat.allocated;
      flat[py::str(key + "freed")] = stat.freed;
    }
  flat["num_alloc_retries"] = stats.num_alloc_retries;
  flat["num_ooms"] = stats.num_ooms;
  return flat;
}

template <typename Change>
void plant(DeviceIndex index, Change change) {
  auto& self = device(index);
  std::lock_guard<std::mutex> lock(self.mutex);
  change(self.plants);
}

// Runs in the stream's thread, in the stream's order; what it raises is an error of the device.
void queue_host_function(DeviceIndex index, const std::string& name, py::function function) {
  auto kept = std::shared_ptr<py::function>(
      new py::function(std::move(function)), [](py::function* held) {
        py::gil_scoped_acquire lock;
        delete held;
      });
  current_queue(index).launch({name, [kept] {
    py::gil_scoped_acquire lock;
    try {
      (*kept)();
    } catch (py::error_already_set& error) {
      throw std::runtime_error(error.what());
    }
  }});
}

int64_t ns(double ms) { return int64_t(ms * 1e6); }

void bind_plants(py::module_& m) {
  m.def("plant_operator", [](DeviceIndex index, const std::string& name, double ms) {
    plant(index, [&](Plants& plants) { plants.operator_ns[name] = ns(ms); });
  });
  m.def("plant_stream", [](DeviceIndex index, StreamId id, double ms) {
    plant(index, [&](Plants& plants) { plants.stream_ns[id] = ns(ms); });
  });
  m.def("plant_error", [](DeviceIndex index, const std::string& name, const std::string& message) {
    plant(index, [&](Plants& plants) { plants.errors[name] = message; });
  });
  m.def("plant_copies", [](DeviceIndex index, int64_t bytes_per_s, double latency_ms) {
    plant(index, [&](Plants& plants) {
      plants.copy_bytes_per_s = bytes_per_s;
      plants.copy_latency_ns = ns(latency_ms);
    });
  });
  m.def("plant_launches", [](DeviceIndex index, double ms, int64_t queue_depth) {
    plant(index, [&](Plants& plants) {
      plants.launch_ns = ns(ms);
      plants.queue_depth = queue_depth;
    });
  });
  m.def("plant_pages", [](DeviceIndex index, int64_t bytes, double ms) {
    plant(index, [&](Plants& plants) {
      plants.page_bytes = bytes;
      plants.page_ns = ns(ms);
    });
  });
  m.def("set_memory_limit", &set_memory_limit);
  // Of all devices at once: a stream of one may wait for another.
  m.def("let_go", [] {
    for (DeviceIndex index = 0; index < kDevices; ++index) device(index).released = true;
    drain_everything();
    for (DeviceIndex index = 0; index < kDevices; ++index) device(index).released = false;
  });
  m.def("unplant", [](DeviceIndex index) {
    auto& self = device(index);
    std::lock_guard<std::mutex> lock(self.mutex);
    self.plants = Plants();
    self.failed = false;
    self.error.clear();
  });
  m.def("work", [](DeviceIndex index, double ms) {
    current_queue(index).launch({"work", [] {}, ns(ms)});
  });
  m.def("record_spans", [](DeviceIndex index, bool recording) {
    auto& self = device(index);
    std::lock_guard<std::mutex> lock(self.mutex);
    self.recording = recording;
    if (recording) self.spans.clear();
  });
  m.def("spans", [](DeviceIndex index) {
    auto& self = device(index);
    std::lock_guard<std::mutex> lock(self.mutex);
    std::vector<std::tuple<std::string, StreamId, int64_t, int64_t>> rows;
    for (const auto& span : self.spans)
      rows.emplace_back(span.name, span.stream, span.begin_ns, span.end_ns);
    return rows;
  });
}

}  // namespace

const at::Generator& default_generator(DeviceIndex index) {
  static const auto* generators = new std::array<at::Generator, kDevices>{
      at::make_generator<Generator>(DeviceIndex(0)), at::make_generator<Generator>(DeviceIndex(1))};
  return (*generators).at(index);
}

at::Generator new_generator(DeviceIndex index) { return at::make_generator<Generator>(index); }

uint64_t next_seed(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device().type() == kType, "Expected a 'threaded' device type for generator but found '",
      generator.device().type(), "'");
  auto* impl = static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
  std::lock_guard<std::mutex> lock(impl->mutex_);
  return impl->random64();
}

}  // namespace threaded

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace threaded;
  m.def("attach", &attach);
  m.def("device_count", [] { return kDevices; });
  m.def("current_device", &current_device);
  m.def("set_device", &set_current_device);
  m.def("default_generator", [](DeviceIndex index) { return default_generator(index); });
  m.def("synchronize", [](DeviceIndex index) { Guard().synchronizeDevice(index); });
  m.def("drain", [] { drain_everything(); });
  m.def("memory_stats", &stats_of);
  m.def("reset_peak_memory_stats", &reset_peak_stats);
  m.def("reset_accumulated_memory_stats", &reset_accumulated_stats);
  m.def("memory_info", &memory_info);
  m.def("empty_cache", &empty_cache);
  m.def("sync_counts", &sync_counts);
  m.def("reset_sync_counts", &reset_sync_counts);
  m.def("refuse_syncs", [](bool refuse) { set_sync_mode(refuse ? SyncMode::Raise : SyncMode::Allow); });
  m.def("is_capturing", [](DeviceIndex index) { return bool(current_queue(index).graph()); });
  m.def("queue_host_function", &queue_host_function);
  m.def("host_view", &host_view);
  bind_plants(m);
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph")
      .def("replay", [](const std::shared_ptr<Graph>& graph, DeviceIndex index) { replay(graph, index); });
  m.def("begin_capture", &begin_capture);
  m.def("end_capture", &end_capture);
}
