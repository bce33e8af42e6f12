// Rotary position embedding (Su et al., "RoFormer", section 3.2) with the halves of a head as pairs, as in Llama.
//
// HEAD_DIM: a multiple of 16. cosine, sine: [positions, HEAD_DIM / 2]. A thread turns 8 pairs. Blocks of 256 threads
// over HEAD_DIM / 16 threads a head; below 2^32 threads.

constexpr int HALF = HEAD_DIM / 2;

// Turns a and b, the same 8 dimensions of either half, by the angles whose cosines and sines begin at c and s;
// back turns the other way, which is the gradient.
__device__ __forceinline__ void turn(uint4& a, uint4& b, const float* c, const float* s, float back) {
  float first[8], second[8], cosine[8], sine[8], turned[8];
  unpack(a, first);
  unpack(b, second);
  load_floats(c, cosine);
  load_floats(s, sine);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    turned[i] = first[i] * cosine[i] - second[i] * sine[i] * back;
    second[i] = second[i] * cosine[i] + first[i] * sine[i] * back;
  }
  a = packed(turned);
  b = packed(second);
}

// Turns queries and keys of qkv [rows, heads + 2 kv_heads, HEAD_DIM] where they are: the first `turned` heads of a
// row's `stride / HEAD_DIM`. Threads for rows * turned heads.
extern "C" __global__ void rotate(narrow* qkv, const long long* positions, const float* cosine, const float* sine,
                                  long long rows, int turned, int stride) {
  settle();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned piece = at % (HALF / 8), index = at / (HALF / 8);
  const unsigned head = index % turned, row = index / turned;
  if (row >= rows) return;
  narrow* to = qkv + (size_t)row * stride + head * HEAD_DIM + piece * 8;
  const size_t angle = (size_t)positions[row] * HALF + piece * 8;
  uint4 a = load(to), b = load(to + HALF);
  turn(a, b, cosine + angle, sine + angle, 1);
  store(to, a);
  store(to + HALF, b);
}

// d_qkv, as qkv above, from d_q, d_k and d_v [rows, heads or kv_heads, HEAD_DIM]. Threads for
// rows * (heads + 2 kv_heads) heads.
extern "C" __global__ void rotate_backward(const narrow* d_q, const narrow* d_k, const narrow* d_v,
                                           const long long* positions, const float* cosine, const float* sine,
                                           narrow* d_qkv, long long rows, int heads, int kv_heads) {
  settle();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned piece = at % (HALF / 8), index = at / (HALF / 8);
  const unsigned head = index % (heads + 2 * kv_heads), row = index / (heads + 2 * kv_heads);
  if (row >= rows) return;
  const size_t kv_row = (size_t)row * kv_heads;
  const narrow* from = head < heads              ? d_q + ((size_t)row * heads + head) * HEAD_DIM
                     : head < heads + kv_heads ? d_k + (kv_row + head - heads) * HEAD_DIM
                                               : d_v + (kv_row + head - heads - kv_heads) * HEAD_DIM;
  uint4 a = load(from + piece * 8), b = load(from + piece * 8 + HALF);
  if (head < heads + kv_heads) {
    const size_t angle = (size_t)positions[row] * HALF + piece * 8;
    turn(a, b, cosine + angle, sine + angle, -1);
  }
  narrow* to = d_qkv + ((size_t)row * (heads + 2 * kv_heads) + head) * HEAD_DIM + piece * 8;
  store(to, a);
  store(to + HALF, b);
}
