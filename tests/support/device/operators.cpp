// Operators of the device: the shapes at once on the host, the CPU's kernel later in the stream.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_map>

#include "memory.h"
#include "operators.h"

namespace threaded {
namespace {

using at::Tensor;
using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

bool on_device(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

OperatorHandle find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

// ---- tensors of the CPU over memory that may belong to the device ------------------------------

// They own nothing: a kernel that runs after its memory was freed reads what is there then.
class Aliases {
 public:
  Tensor of(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    auto& alias = tensors_[tensor.unsafeGetTensorImpl()];
    if (!alias.defined()) alias = make(tensor);
    return alias;
  }

  // A number that waits in a tensor of the host is read at the call, as CUDA does.
  Tensor number(const Tensor& tensor) {
    auto& copy = tensors_[tensor.unsafeGetTensorImpl()];
    if (!copy.defined()) {
      copy = tensor.clone();
      const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      if (wrapped) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return copy;
  }

 private:
  Tensor make(const Tensor& tensor) {
    TORCH_CHECK(tensor.layout() == at::kStrided, "threaded: only dense tensors");
    c10::InferenceMode normal(false);
    const auto& source = tensor.storage();
    auto& storage = storages_[source.unsafeGetStorageImpl()];
    if (!storage)
      storage = c10::Storage(
          c10::Storage::use_byte_size_t(), source.nbytes(),
          c10::DataPtr(source.mutable_data(), c10::Device(c10::DeviceType::CPU)), nullptr, false);
    auto alias = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    alias.unsafeGetTensorImpl()->set_sizes_and_strides(
        tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.is_conj()) alias._set_conj(true);
    if (tensor.is_neg()) alias._set_neg(true);
    return alias;
  }

  std::unordered_map<c10::TensorImpl*, Tensor> tensors_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
};

// The same arguments with other tensors.
template <typename Change>
IValue changed(const IValue& value, Change change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const auto& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
      list.push_back(tensor && tensor->defined() ? std::optional<Tensor>(change(*tensor)) : std::nullopt);
    return list;
  }
  return value;
}

template <typename Visit>
void each_tensor(const IValue& value, Visit visit) {
  changed(value, [&](const Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
    return tensor;
  });
}

// What is asked of an operator at every call.
struct Facts {
  explicit Facts(const OperatorHandle& op) {
    const auto& schema = op.schema();
    kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    meta = op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
    bool seeded = false;
    for (auto tag : op.getTags()) {
      seeded |= tag == at::Tag::nondeterministic_seeded;
      waits |= tag == at::Tag::dynamic_output_shape || tag == at::Tag::data_dependent_output;
    }
    for (const auto& argument : schema.arguments()) {
      generators.push_back(has(argument, "Generator"));
      seeded &= !generators.back();
    }
    unseeded = seeded;
    for (const auto& result : schema.returns()) {
      waits |= !has(result, "Tensor");
      view |= result.alias_info() && !result.alias_info()->isWrite();
      fresh |= !result.alias_info();
    }
    index = schema.name() == "aten::index";
    put = schema.name() == "aten::_index_put_impl_";
    waits &= !index;
  }

  static bool has(const c10::Argument& argument, const char* type) {
    return argument.type()->str().find(type) != std::string::npos;
  }

  static const Facts& of(const OperatorHandle& op) {
    static std::mutex mutex;
    static std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Facts>> all;
    std::lock_guard<std::mutex> lock(mutex);
    auto& facts = all[&op.schema()];
    if (!facts) facts = std::make_unique<Facts>(op);
    return *facts;
  }

  bool kernel, meta;
  bool unseeded;       // draws numbers and takes no generator
  bool waits = false;  // the host needs values: how large something is, or which way to go
  bool view = false, fresh = false;
  bool index, put;
  std::vector<bool> generators;  // of the arguments
};

// ---- shapes, which PyTorch infers in Python: half a millisecond for a sum ------------------------

struct Shapes {
  Stack returned, arguments;
};

// All of a call that its shapes can depend on; false where something else is among the arguments.
class Key {
 public:
  explicit Key(const std::string& name) : bytes(name) { add(c10::get_default_dtype().id()); }

  bool add_value(const IValue& value) {
    if (value.isTensor()) return add_tensor(value.toTensor());
    if (value.isTensorList()) {
      const auto list = value.toTensorVector();
      add(list.size());
      return std::all_of(list.begin(), list.end(), [&](auto& tensor) { return add_tensor(tensor); });
    }
    if (value.isOptionalTensorList()) {
      const auto list = value.toOptionalTensorList();
      add(list.size());
      for (const std::optional<Tensor>& tensor : list) add_tensor(tensor.value_or(Tensor()));
      return true;
    }
    if (value.isNone() || value.isGenerator()) return add('n');
    if (value.isInt()) return add('i') && add(value.toInt());
    if (value.isDouble()) return add('d') && add(value.toDouble());
    if (value.isBool()) return add(value.toBool() ? 'y' : 'z');
    if (value.isIntList()) return add_list('I', value.toIntVector());
    if (value.isDoubleList()) return add_list('D', value.toDoubleVector());
    if (value.isString()) return add_list('s', value.toStringRef());
    if (value.isBoolList()) {
      const auto list = value.toBoolList();
      add(list.size());
      for (const bool each : list) add(each ? 'y' : 'z');
      return true;
    }
    return false;
  }

  std::string bytes;

 private:
  template <typename T>
  bool add(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return true;
  }

  template <typename List>
  bool add_list(char kind, const List& list) {
    add(kind);
    add(list.size());
    for (const auto& each : list) add(each);
    return true;
  }

  bool add_tensor(const Tensor& tensor) {
    if (!tensor.defined()) return add('u');
    add(on_device(tensor) ? 't' : tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 'w' : 'c');
    add(tensor.scalar_type());
    return add_list('S', tensor.sizes()) && add_list('T', tensor.strides());
  }
};

// ---- one call ---------------------------------------------------------------------------------

class Call {
 public:
  Call(const OperatorHandle& op, const Stack& stack)
      : op_(op), schema_(op.schema()), name_(schema_.name()), facts_(Facts::of(op)) {
    const auto count = schema_.arguments().size();
    arguments_.assign(stack.end() - count, stack.end());
    find_device();
    require_kernel();
  }

  // Queues the operator and leaves what it will return.
  void queue_on(Stack* stack) {
    c10::DeviceGuard guard(device_);
    if (facts_.waits || (facts_.index && has_mask())) return run_now(stack);
    const auto shapes = infer();
    for (size_t i = 0; i < shapes.arguments.size(); ++i)
      if (schema_.arguments()[i].is_out() && arguments_[i].isTensor())
        resize(arguments_[i].toTensor(), shapes.arguments[i].toTensor());
    Stack on_cpu = cpu_arguments();
    std::vector<Tensor> results;  // as the CPU sees them
    Stack returned = returns(shapes.returned, results);
    current_queue(device_.index()).launch({name_, [op = op_, on_cpu, results] {
      at::AutoDispatchBelowADInplaceOrView below;
      at::NoGradGuard no_grad;
      Stack run = on_cpu;
      op.callBoxed(run);
      store(op.schema(), run, results);
    }});
    leave(stack, std::move(returned));
  }

 private:
  void find_device() {
    std::optional<c10::Device> device;
    for (const auto& argument : arguments_)
      each_tensor(argument, [&](const Tensor& tensor) {
        if (on_device(tensor)) {
          TORCH_CHECK(
              !device || *device == tensor.device(), name_,
              ": expected all tensors on the same device, but found ", *device, " and ",
              tensor.device());
          device = tensor.device();
        }
      });
    TORCH_CHECK(device, name_, ": no tensor of the device among the arguments");
    device_ = *device;
    for (auto& argument : arguments_) {
      if ((facts_.index || facts_.put) && argument.isOptionalTensorList())
        argument = changed(argument, [&](const Tensor& tensor) { return tensor.to(device_); });
      each_tensor(argument, [&](const Tensor& tensor) {
        TORCH_CHECK(
            on_device(tensor) || (tensor.device().is_cpu() && tensor.dim() == 0), name_,
            ": expected all tensors on the same device, but found ", device_, " and ",
            tensor.device());
      });
    }
  }

  void require_kernel() const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        facts_.kernel, name_, " has no kernel on the device 'threaded'");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !facts_.unseeded, name_,
        " draws numbers in a way that the device 'threaded' does not know");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !facts_.view, name_, " makes a view, which the device 'threaded' does not know");
  }

  bool has_mask() const {
    bool mask = false;
    for (const auto& argument : arguments_)
      if (argument.isOptionalTensorList())
        each_tensor(argument, [&](const Tensor& tensor) {
          mask |= tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
        });
    return mask;
  }

  void run_now(Stack* stack) {
    auto& queue = current_queue(device_.index());
    before_wait(name_ == "aten::_local_scalar_dense" ? "item" : name_);
    throw_if_failed(device_.index());
    queue.wait();
    throw_if_failed(device_.index());
    Stack run = cpu_arguments();
    {
      at::AutoDispatchBelowADInplaceOrView below;
      op_.callBoxed(run);
    }
    for (auto& value : run)
      value = changed(value, [&](const Tensor& tensor) { return moved(tensor); });
    leave(stack, std::move(run));
  }

  // A result of the host as a tensor of the device.
  Tensor moved(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    auto result = at::empty_strided(
        tensor.sizes(), tensor.strides(), tensor.options().device(device_));
    auto target = aliases_.of(result);
    current_queue(device_.index()).launch({"memcpy", [target, tensor] {
      at::AutoDispatchBelowADInplaceOrView below;
      target.copy_(tensor);
    }});
    return result;
  }

  // What the operator would return on tensors without data, and what its arguments would be then.
  Shapes infer() {
    if (!facts_.meta || has_mask()) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          !facts_.fresh, name_, " has no shapes on the device 'threaded'");
      return {};
    }
    static std::mutex mutex;
    static std::unordered_map<std::string, Shapes> cache;
    Key key(name_ + "." + schema_.overload_name());
    const bool cached = std::all_of(arguments_.begin(), arguments_.end(), [&](auto& argument) {
      return key.add_value(argument);
    });
    if (cached) {
      std::lock_guard<std::mutex> lock(mutex);
      const auto entry = cache.find(key.bytes);
      if (entry != cache.end()) return entry->second;
    }
    auto shapes = infer_anew();
    std::lock_guard<std::mutex> lock(mutex);
    if (cache.size() > 20000) cache.clear();
    if (cached) cache.emplace(key.bytes, shapes);
    return shapes;
  }

  Shapes infer_anew() {
    Shapes shapes;
    for (const auto& argument : arguments_)
      shapes.arguments.push_back(
          argument.isGenerator() ? IValue() : changed(argument, [&](const Tensor& tensor) {
            return meta(tensor);
          }));
    shapes.returned = shapes.arguments;
    at::AutoDispatchBelowADInplaceOrView below;
    at::NoGradGuard no_grad;
    try {
      op_.callBoxed(shapes.returned);
    } catch (const c10::NotImplementedError&) {
      if (facts_.fresh) throw;  // what only changes its arguments has no shapes to tell
      return {};
    }
    return shapes;
  }

  Tensor meta(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!on_device(tensor)) return aliases_.number(tensor);  // outlives the call in the cache
    auto& twin = metas_[tensor.unsafeGetTensorImpl()];
    if (!twin.defined())
      twin = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    return twin;
  }

  static void resize(const Tensor& out, const Tensor& shape) {
    if (out.sizes() == shape.sizes()) return;
    at::native::resize_output(out, shape.sizes());
    if (out.strides() != shape.strides()) out.as_strided_(shape.sizes(), shape.strides());
  }

  Stack cpu_arguments() {
    Stack on_cpu;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      on_cpu.push_back(facts_.generators[i] ? IValue(drawn(arguments_[i])) : changed(arguments_[i], [&](const Tensor& tensor) {
        return !tensor.defined() || on_device(tensor) ? aliases_.of(tensor) : aliases_.number(tensor);
      }));
    }
    return on_cpu;
  }

  // Numbers are drawn from a seed that the device's generator gives at the call.
  at::Generator drawn(const IValue& argument) {
    auto generator =
        argument.isNone() ? default_generator(device_.index()) : argument.toGenerator();
    return at::detail::createCPUGenerator(next_seed(generator));
  }

  // Written arguments as they are, everything else new, with the shape that was inferred.
  Stack returns(const Stack& shapes, std::vector<Tensor>& results) {
    Stack returned;
    for (size_t i = 0; i < schema_.returns().size(); ++i) {
      const auto& result = schema_.returns()[i];
      if (result.alias_info()) {
        returned.push_back(written(*result.alias_info()));
        continue;
      }
      returned.push_back(changed(shapes[i].isNone() ? IValue(Tensor()) : shapes[i], [&](const Tensor& shape) {
        auto tensor = !shape.defined() ? Tensor() : at::empty_strided(
            shape.sizes(), shape.strides(), shape.options().device(device_));
        results.push_back(aliases_.of(tensor));
        return tensor;
      }));
    }
    return returned;
  }

  IValue written(const c10::AliasInfo& alias) const {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto* info = schema_.arguments()[i].alias_info();
      if (info && *info == alias) return arguments_[i];
    }
    TORCH_CHECK(false, name_, ": no argument for what it returns");
  }

  static void store(
      const c10::FunctionSchema& schema, const Stack& run, const std::vector<Tensor>& results) {
    size_t next = 0;
    for (size_t i = 0; i < run.size(); ++i) {
      if (schema.returns()[i].alias_info()) continue;
      changed(run[i], [&](const Tensor& computed) {
        const auto& result = results.at(next++);
        // Batch norm returns no statistics where it computed none, whatever the shapes say.
        if (!result.defined() || computed.numel() == 0) return computed;
        TORCH_CHECK(
            computed.defined() && computed.sizes() == result.sizes(),
            "the kernel returned another shape than was inferred");
        result.copy_(computed);
        return computed;
      });
    }
  }

  void leave(Stack* stack, Stack returned) const {
    torch::jit::drop(*stack, arguments_.size());
    for (auto& value : returned) stack->push_back(std::move(value));
  }

  const OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  const std::string name_;
  const Facts& facts_;
  std::vector<IValue> arguments_;
  c10::Device device_{c10::DeviceType::PrivateUse1, 0};
  Aliases aliases_;
  std::unordered_map<c10::TensorImpl*, Tensor> metas_;
};

void queue_operator(const OperatorHandle& op, Stack* stack) { Call(op, *stack).queue_on(stack); }

// ---- memory -----------------------------------------------------------------------------------

c10::Device place(std::optional<c10::Device> device) {
  if (!device || !device->has_index()) return {c10::DeviceType::PrivateUse1, current_device()};
  return *device;
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(place(device));
  return at::detail::empty_generic(
      size, device_allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(place(device));
  return at::detail::empty_strided_generic(
      size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype));
}

Tensor view_of(
    const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, int64_t offset,
    std::optional<caffe2::TypeMeta> dtype = std::nullopt) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(),
      dtype.value_or(self.dtype()));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return view;
}

Tensor as_strided(
    const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  return view_of(self, size, stride, offset.value_or(self.storage_offset()));
}

Tensor view(const Tensor& self, c10::IntArrayRef size) {
  const auto shape = at::infer_size(size, self.numel());
  const auto stride = at::detail::computeStride(self.sizes(), self.strides(), shape);
  TORCH_CHECK(
      stride, "view size is not compatible with input tensor's size and stride (at least one "
      "dimension spans across two contiguous subspaces). Use .reshape(...) instead.");
  return view_of(self, shape, *stride, self.storage_offset());
}

Tensor reshape_alias(const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return view_of(self, size, stride, self.storage_offset());
}

Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  dim = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.dim() > 0 && size <= self.size(dim) && step > 0, "unfold: wrong size or step");
  auto sizes = self.sizes().vec(), strides = self.strides().vec();
  sizes.push_back(size);
  strides.push_back(strides[dim]);
  sizes[dim] = (self.size(dim) - size) / step + 1;
  strides[dim] *= step;
  return view_of(self, sizes, strides, self.storage_offset());
}

Tensor view_as_real(const Tensor& self) {
  auto sizes = self.sizes().vec(), strides = self.strides().vec();
  for (auto& stride : strides) stride *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  const auto dtype = c10::scalarTypeToTypeMeta(c10::toRealValueType(self.scalar_type()));
  return view_of(self, sizes, strides, self.storage_offset() * 2, dtype);
}

Tensor view_as_complex(const Tensor& self) {
  TORCH_CHECK(
      self.dim() > 0 && self.size(-1) == 2 && self.stride(-1) == 1,
      "view_as_complex: the last dimension must be of two neighbours");
  auto sizes = self.sizes().vec(), strides = self.strides().vec();
  sizes.pop_back();
  strides.pop_back();
  for (auto& stride : strides) stride /= 2;
  const auto dtype = c10::scalarTypeToTypeMeta(c10::toComplexType(self.scalar_type()));
  return view_of(self, sizes, strides, self.storage_offset() / 2, dtype);
}

const Tensor& resize(
    const Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  int64_t count = 1;
  for (auto length : size) count *= length;
  const auto bytes = size_t(self.storage_offset() + count) * self.itemsize();
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

Tensor& set_storage(
    Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.empty() && !size.empty()) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  const auto length = int64_t(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {length}, {1});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(
      self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_nothing(Tensor& self) {
  return set_tensor(self, at::empty({0}, self.options()));
}

// ---- copies -----------------------------------------------------------------------------------


constexpr size_t kStagedBytes = 64 << 10;  // as CUDA documents it

void copy_between_devices(const Tensor& from, const Tensor& to, Task task) {
  // On the source's stream, which waits for the target's and is waited for, as on CUDA.
  auto& queue = current_queue(from.device().index());
  auto& other = current_queue(to.device().index());
  auto ready = std::make_shared<Event>(false), copied = std::make_shared<Event>(false);
  Event::record(ready, other);
  Event::block(ready, queue);
  queue.launch(std::move(task));
  Event::record(copied, queue);
  Event::block(copied, other);
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  Aliases aliases;
  Task task;
  task.name = "aten::copy_";
  const auto& host = on_device(from) ? to : from;
  const auto kept = on_device(host) ? nullptr : pinned_block(host.storage().data());
  // A little of the host's memory is staged at the call; of more the host waits for the copy.
  const bool staged = non_blocking && !kept && !on_device(from) && from.nbytes() <= kStagedBytes;
  const auto source = staged ? from.clone() : aliases.of(from);
  task.run = [to = aliases.of(to), source, kept] {
    at::AutoDispatchBelowADInplaceOrView below;
    at::NoGradGuard no_grad;
    to.copy_(source);
  };
  if (on_device(from) && on_device(to)) {
    if (from.device() == to.device())
      current_queue(to.device().index()).launch(std::move(task));
    else
      copy_between_devices(from, to, std::move(task));
    return to;
  }
  TORCH_CHECK(host.device().is_cpu(), "threaded: no copy between these devices");
  const auto index = (on_device(from) ? from : to).device().index();
  auto& self = device(index);
  task.name = on_device(from) ? "memcpy_to_host" : "memcpy_to_device";
  task.engine = &self.engines[on_device(from)];
  {
    std::lock_guard<std::mutex> lock(self.mutex);
    task.least_ns = self.plants.copy_latency_ns;
    if (self.plants.copy_bytes_per_s > 0)
      task.least_ns += int64_t(1e9 * double(from.nbytes()) / double(self.plants.copy_bytes_per_s));
  }
  auto& queue = current_queue(index);
  if (!non_blocking) before_wait("copy");
  const bool waits = !non_blocking || !(kept || staged);
  if (non_blocking && waits) before_wait("pageable copy");
  queue.launch(std::move(task));
  if (waits) {
    queue.wait();
    throw_if_failed(index);
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

void record_tensor(Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data_ptr(), stream.id());
}

// ---- operators that the CPU has under another name, or not at all -------------------------------

void convolution(const OperatorHandle&, Stack* stack) {
  static const auto op = find_operator("aten::convolution");
  queue_operator(op, stack);
}

void convolution_backward(const OperatorHandle&, Stack* stack) {
  static const auto op = find_operator("aten::convolution_backward");
  // The other one has the sizes of the bias behind the weight.
  const auto first = stack->size() - 10;
  const auto weight = (*stack)[first + 2].toTensor();
  const bool transposed = (*stack)[first + 6].toBool();
  const auto groups = (*stack)[first + 8].toInt();
  const auto channels = transposed ? weight.size(1) * groups : weight.size(0);
  stack->insert(stack->begin() + int64_t(first) + 3, IValue(std::vector<int64_t>{channels}));
  queue_operator(op, stack);
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(true))
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  auto mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  auto gates = input_gates + hidden_gates;
  if (input_bias && input_bias->defined()) gates.add_(*input_bias).add_(*hidden_bias);
  auto parts = gates.chunk(4, 1);
  parts[0].sigmoid_();
  parts[1].sigmoid_();
  parts[2].tanh_();
  parts[3].sigmoid_();
  auto cy = parts[1] * cx + parts[0] * parts[2];
  return {parts[3] * cy.tanh(), cy, gates};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const std::optional<Tensor>& grad_hy, const std::optional<Tensor>& grad_cy, const Tensor& cx,
    const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(4, 1);
  const auto &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const auto bent = cy.tanh();
  auto to_cell = grad_cy && grad_cy->defined() ? grad_cy->clone() : at::zeros_like(cy);
  auto to_out = at::zeros_like(cy);
  if (grad_hy && grad_hy->defined()) {
    to_cell = to_cell + *grad_hy * out * (1 - bent * bent);
    to_out = *grad_hy * bent;
  }
  auto to_gates = at::cat(
      {to_cell * cell * in * (1 - in), to_cell * cx * forget * (1 - forget),
       to_cell * in * (1 - cell * cell), to_out * out * (1 - out)},
      1);
  return {to_gates, to_cell * forget, has_bias ? to_gates.sum(0) : Tensor()};
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor) { return Aliases().of(tensor); }

void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::DeviceGuard guard(storage.device());
  auto fresh = device_allocator()->allocate(bytes);
  const auto kept = std::min(bytes, storage.nbytes());
  if (kept > 0)
    current_queue(storage.device().index())
        .launch({"memcpy", [to = fresh.get(), from = storage.data(), kept] {
          std::memcpy(to, from, kept);
        }});
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&queue_operator>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", unfold);
  m.impl("view_as_real", view_as_real);
  m.impl("view_as_complex", view_as_complex);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("record_stream", record_tensor);
  m.impl("native_dropout", native_dropout);
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl(
      "convolution_backward_overrideable",
      torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

// Copies resolve a lazy conjugate or sign themselves; PyTorch's own way here would copy to do so.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

// What the CPU has a kernel for is one kernel here as well; without this PyTorch would compose most
// of it from others, with copies between them.
void register_operators() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const bool foreach = name.name.rfind("aten::_foreach_", 0) == 0;
    const bool other = name.name == "aten::native_layer_norm" || name.name == "aten::embedding";
    if (!op || name.name.rfind("aten::", 0) != 0 || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1))
      continue;
    if (foreach || other || op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      library->impl(
          toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&queue_operator>());
  }
}

}  // namespace threaded
