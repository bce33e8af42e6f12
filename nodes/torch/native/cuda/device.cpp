// The device: streams, events, graphs, memory. There is one device, number 0, for the process.
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>

#include "../guard.h"

using at::cuda::CUDAGraph;
using at::cuda::MemPool;
using c10::cuda::CUDAEvent;
using c10::cuda::CUDAStream;
using rlpipe::guarded;
namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {
constexpr c10::DeviceIndex DEVICE = 0;

// Torch keeps a pool of streams for the life of the process, so a stream is a plain number.
CUDAStream unpack(int64_t stream) { return CUDAStream::unpack3(stream, DEVICE, c10::DeviceType::CUDA); }

auto *host_allocator() { return at::getHostAllocator(at::kCUDA); }

// The id of a pool dies with its last graph, and capturing into a dead one trips an assertion of torch. This holds the id
// in the allocators of the device and of pinned memory for as long as it lives.
struct Pool {
  MemPool device;
  Pool() {
    host_allocator()->begin_allocate_to_pool(device.id(), [](c10::Stream) { return false; });
    host_allocator()->end_allocate_to_pool(device.id());
  }
  ~Pool() { host_allocator()->release_pool(device.id()); }
};

// When something in a capture was not allowed, CUDAGraph::capture_end (torch 2.11) throws before it undoes what
// capture_begin did: random generators go on refusing eager use, and the allocators go on feeding the pool.
struct Graph : CUDAGraph {
  void end() {
    try {
      capture_end();
    } catch (...) {
      abandon();
      throw;
    }
  }

 private:
  template <class Step>
  static void quietly(Step step) noexcept {
    try {
      step();
    } catch (...) {  // capture_end had got past it
    }
  }
  void abandon() noexcept {
    for (auto &[state, increment] : captured_generator_states_) state->capturing_ = false;
    quietly([&] { allocator::endAllocateToPool(capture_dev_, mempool_id_); });
    quietly([&] { host_allocator()->end_allocate_to_pool(mempool_id_); });
    if (capture_ended_) return;  // then the destructor releases them
    quietly([&] { allocator::releasePool(capture_dev_, mempool_id_); });
    quietly([&] { host_allocator()->release_pool(mempool_id_); });
  }
};

struct Memory {
  uint64_t free, total, allocated, reserved, peak_allocated, peak_reserved;
};
}  // namespace

extern "C" {

// Equal to the number that the program was built with when both are of the same sources.
uint64_t rlpipe_cuda_sources() { return RLPIPE_SOURCES; }

void rlpipe_cuda_free(void *message) { free(message); }

// Makes the context and says what the card is called and can do.
char *rlpipe_cuda_start(char *name, size_t capacity, int *major, int *minor) {
  return guarded([&] {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    C10_CUDA_CHECK(cudaFree(nullptr));
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, DEVICE));
    snprintf(name, capacity, "%s", properties.name);
    *major = properties.major;
    *minor = properties.minor;
  });
}

char *rlpipe_cuda_stream_new(int64_t *out) {
  return guarded([&] { *out = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, DEVICE).id(); });
}
char *rlpipe_cuda_stream_current(int64_t *out) {
  return guarded([&] { *out = c10::cuda::getCurrentCUDAStream(DEVICE).id(); });
}
char *rlpipe_cuda_stream_set_current(int64_t stream) {
  return guarded([&] { c10::cuda::setCurrentCUDAStream(unpack(stream)); });
}
char *rlpipe_cuda_stream_synchronize(int64_t stream) {
  return guarded([&] { unpack(stream).synchronize(); });
}

char *rlpipe_cuda_event_new(bool timing, CUDAEvent **out) {
  return guarded([&] { *out = new CUDAEvent(timing ? cudaEventDefault : cudaEventDisableTiming); });
}
char *rlpipe_cuda_event_record(CUDAEvent *event, int64_t stream) {
  return guarded([&] { event->record(unpack(stream)); });
}
char *rlpipe_cuda_event_block(CUDAEvent *event, int64_t stream) {
  return guarded([&] { event->block(unpack(stream)); });
}
char *rlpipe_cuda_event_done(CUDAEvent *event, bool *out) {
  return guarded([&] { *out = event->query(); });
}
char *rlpipe_cuda_event_synchronize(CUDAEvent *event) {
  return guarded([&] { event->synchronize(); });
}
char *rlpipe_cuda_event_milliseconds(CUDAEvent *from, CUDAEvent *to, float *out) {
  return guarded([&] { *out = from->elapsed_time(*to); });
}
void rlpipe_cuda_event_free(CUDAEvent *event) { delete event; }

char *rlpipe_cuda_pool_new(Pool **out) {
  return guarded([&] { *out = new Pool(); });
}
void rlpipe_cuda_pool_free(Pool *pool) { delete pool; }

char *rlpipe_cuda_graph_new(Graph **out) {
  return guarded([&] { *out = new Graph(); });
}
// Capture starts on the current stream, which must not be the default one. Thread-local mode leaves the other threads of
// the process free to allocate.
char *rlpipe_cuda_graph_begin(Graph *graph, Pool *pool) {
  return guarded([&] { graph->capture_begin(pool->device.id(), cudaStreamCaptureModeThreadLocal); });
}
char *rlpipe_cuda_graph_end(Graph *graph) {
  return guarded([&] { graph->end(); });
}
char *rlpipe_cuda_graph_replay(Graph *graph) {
  return guarded([&] { graph->replay(); });
}
void rlpipe_cuda_graph_free(Graph *graph) { delete graph; }

// `like` gives the type.
char *rlpipe_cuda_pinned(const int64_t *sizes, size_t dimensions, const Tensor *like, Tensor **out) {
  return guarded([&] {
    auto options = at::TensorOptions().dtype(like->dtype()).pinned_memory(true);
    *out = new Tensor(at::empty(c10::IntArrayRef(sizes, dimensions), options));
  });
}

char *rlpipe_cuda_memory(Memory *out) {
  return guarded([&] {
    size_t available = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&available, &total));
    auto stats = allocator::getDeviceStats(DEVICE);
    auto allocated = stats.allocated_bytes[0], reserved = stats.reserved_bytes[0];
    auto number = [](int64_t bytes) { return static_cast<uint64_t>(bytes); };
    *out = {available,
            total,
            number(allocated.current),
            number(reserved.current),
            number(allocated.peak),
            number(reserved.peak)};
  });
}
char *rlpipe_cuda_reset_peak() {
  return guarded([] { allocator::resetPeakStats(DEVICE); });
}
char *rlpipe_cuda_empty_cache() {
  return guarded([] { allocator::emptyCache(); });
}
}
