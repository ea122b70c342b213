// Memory of the device, cached by stream and poisoned where it is freed; pinned memory of the host.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "runtime.h"

namespace threaded {

using c10::CachingDeviceAllocator::DeviceStats;

c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();

// Memory that *stream* uses is not reused before the stream has come past the moment of its freeing.
void record_stream(const c10::DataPtr& data, StreamId stream);

// What keeps pinned memory from being reused, or nothing where the pointer is not pinned.
std::shared_ptr<void> pinned_block(const void* pointer);

// The device whose memory holds *pointer*.
DeviceIndex device_of(const void* pointer);

DeviceStats memory_stats(DeviceIndex index);
void reset_accumulated_stats(DeviceIndex index);
void reset_peak_stats(DeviceIndex index);
void empty_cache(DeviceIndex index);
void set_memory_limit(DeviceIndex index, size_t bytes);
std::pair<size_t, size_t> memory_info(DeviceIndex index);

}  // namespace threaded
