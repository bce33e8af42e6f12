// What the kernels share. All files are compiled as one source by NVRTC, this one first; there are no headers. Compute
// capability 8.0 or later.
//
// `narrow`, the type that the network computes in, is float16 where the macro FLOAT16 is defined, and else bfloat16,
// which is the upper half of a float. HEAD_DIM and SHARE (query heads per key head) are given as macros. Every pointer
// is to contiguous rows and aligned to 16 bytes unless the comment above a kernel says otherwise; arithmetic is float32.

typedef unsigned short narrow;
typedef unsigned long long u64;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOG2_E = 1.44269504089f;
constexpr float LN_2 = 0.69314718056f;
// Below every logit and score that counts, and far from overflow.
constexpr float LOWEST = -1e30f;
// Tokens of a page of the cache.
constexpr int PAGE = 64;

// Every kernel begins with this: it may be launched before the kernel ahead of it has ended, whose writes are there from here
// on. Those of kernels before that one are there from the start, and until here nothing may be written.
__device__ __forceinline__ void settle() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#ifdef FLOAT16
#define NARROW "f16"
__device__ __forceinline__ float up(narrow x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x));
  return result;
}
__device__ __forceinline__ float low(unsigned pair) { return up((narrow)pair); }
__device__ __forceinline__ float high(unsigned pair) { return up((narrow)(pair >> 16)); }
#else
#define NARROW "bf16"
__device__ __forceinline__ float low(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
#endif

// Two floats to nearest even, the first in the lower half. What is too large for float16 becomes infinite.
__device__ __forceinline__ unsigned pack(float first, float second) {
  unsigned pair;
  asm("cvt.rn." NARROW "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

__device__ __forceinline__ narrow down(float x) { return (narrow)(pack(x, 0) & 0xffffu); }

// 2^x.
__device__ __forceinline__ float power(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ uint4 load(const narrow* from) { return *reinterpret_cast<const uint4*>(from); }
__device__ __forceinline__ void store(narrow* to, uint4 value) { *reinterpret_cast<uint4*>(to) = value; }

__device__ __forceinline__ void unpack(uint4 raw, float (&to)[8]) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = low(words[i]);
    to[2 * i + 1] = high(words[i]);
  }
}

__device__ __forceinline__ uint4 packed(const float (&from)[8]) {
  return {pack(from[0], from[1]), pack(from[2], from[3]), pack(from[4], from[5]), pack(from[6], from[7])};
}

__device__ __forceinline__ void load_floats(const float* from, float (&to)[8]) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

// Rows of either type.
__device__ __forceinline__ void load_floats(const narrow* from, float (&to)[8]) { unpack(load(from), to); }
__device__ __forceinline__ void store_floats(narrow* to, const float (&from)[8]) { store(to, packed(from)); }
__device__ __forceinline__ void store_floats(float* to, const float (&from)[8]) {
  reinterpret_cast<float4*>(to)[0] = {from[0], from[1], from[2], from[3]};
  reinterpret_cast<float4*>(to)[1] = {from[4], from[5], from[6], from[7]};
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
  return x;
}

// The sum over a block's first dimension, in every thread; a block of more than one warp has one row.
__device__ __forceinline__ float row_sum(float x) {
  __shared__ float partial[32];
  x = warp_sum(x);
  if (blockDim.x == 32) return x;
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0);
  __syncthreads();
  return x;
}

// A row of logits as vectors of 8. Rows of a vocabulary that is no multiple of 4 are not aligned: they come element by
// element. What is after the row, and ids held back, are minus infinity.
struct Logits {
  const float* from;
  int count, vectors;
  bool aligned;
  int held;
  const int* stops;
};
__device__ __forceinline__ Logits logits_of(const float* row, int count) {
  return {row, count, (count + 7) / 8, (u64)row % 16 == 0, 0, nullptr};
}
__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }
__device__ __forceinline__ void fetch(const Logits& row, int vector, float (&to)[8]) {
  const int first = vector * 8;
  if (row.aligned && first + 8 <= row.count) {
    load_floats(row.from + first, to);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = first + i < row.count ? row.from[first + i] : minus_infinity();
  }
  for (int i = 0; i < row.held; ++i) {
    const int at = row.stops[i] - first;
    if (row.stops[i] < 0) break;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (at == j) to[j] = minus_infinity();
  }
}
// Nothing where there is no such vector.
__device__ __forceinline__ void fetch_or_none(const Logits& row, int vector, float (&to)[8]) {
  if (vector < row.vectors) {
    fetch(row, vector, to);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = minus_infinity();
  }
}
