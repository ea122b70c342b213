// What the operators take from the rest of the device, and give to it.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "runtime.h"

namespace threaded {

const at::Generator& default_generator(DeviceIndex index);
at::Generator new_generator(DeviceIndex index);

// The seed of the next draw: a number of the device's generator.
uint64_t next_seed(const at::Generator& generator);

// Takes over every operator that the CPU has a kernel for.
void register_operators();

// The memory of a tensor of the device as the host sees it, whatever is queued.
at::Tensor host_view(const at::Tensor& tensor);

// Gives the storage other memory of that size; what fits is copied in the order of the stream.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace threaded
