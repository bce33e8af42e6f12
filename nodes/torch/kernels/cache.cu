// The paged cache: keys and values [layers][pages][kv_heads][PAGE][HEAD_DIM] each.
//
// HEAD_DIM: a multiple of 32. TILE tokens of a head, TILE * HEAD_DIM elements, lie in the order in which the lanes of a
// warp take them as operands of the tensor cores (`attend`), so that a warp reads whole lines: vector p of lane l, 8
// elements, is at (p * 32 + l) * 8. With g = l / 4 and t = l % 4, a lane has of the keys of tokens g and g + 8
// dimensions 8 t to 8 t + 7 of each 32; and of the values of tokens 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 dimensions SPAN g
// to SPAN g + SPAN - 1 of each 8 SPAN.

constexpr int TILE = 16;
// Dimensions of a value that lie side by side, and how often a lane has so many.
constexpr int SPAN = HEAD_DIM % 64 ? 4 : 8;
constexpr int VALUE_PIECES = HEAD_DIM / 8 / SPAN;
constexpr int KEY_PIECES = HEAD_DIM / 32;

// Where dimensions 8 c to 8 c + 7 of the key at this offset of a page are, from the page's head.
__device__ __forceinline__ int key_place(int offset, int c) {
  const int token = offset % TILE, p = token / 8 * KEY_PIECES + c / 4;
  return offset / TILE * TILE * HEAD_DIM + (p * 32 + token % 8 * 4 + c % 4) * 8;
}
// Where dimensions SPAN c to SPAN c + SPAN - 1 of the value are.
__device__ __forceinline__ int value_place(int offset, int c) {
  const int token = offset % TILE, n = token / 8 * 2 + token % 2, at = (n * VALUE_PIECES + c / 8) * SPAN;
  return offset / TILE * TILE * HEAD_DIM + (at / 8 * 32 + c % 8 * 4 + token % 8 / 2) * 8 + at % 8;
}
// Dimensions 8 c to 8 c + 7.
__device__ __forceinline__ void store_value(narrow* page, int offset, int c, uint4 value) {
  if constexpr (SPAN == 8) {
    store(page + value_place(offset, c), value);
  } else {
    *reinterpret_cast<uint2*>(page + value_place(offset, 2 * c)) = {value.x, value.y};
    *reinterpret_cast<uint2*>(page + value_place(offset, 2 * c + 1)) = {value.z, value.w};
  }
}

// Prefill: token t's k and v go to page places[t] / PAGE, offset places[t] % PAGE, of one layer (keys and values point
// at it). k [tokens, kv_heads, HEAD_DIM]; a row of either begins its stride (a multiple of 8) of elements after the one
// before. A negative place is skipped. Blocks of 256 threads over tokens * kv_heads * HEAD_DIM / 8 threads.
extern "C" __global__ void write_cache(const narrow* k, const narrow* v, long long k_stride, long long v_stride,
                                       const long long* places, narrow* keys, narrow* values, long long tokens,
                                       int kv_heads) {
  settle();
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned piece = at % (HEAD_DIM / 8), index = at / (HEAD_DIM / 8);
  const unsigned head = index % kv_heads, token = index / kv_heads;
  if (token >= tokens || places[token] < 0) return;
  const size_t page = (size_t)(places[token] / PAGE * kv_heads + head) * PAGE * HEAD_DIM;
  const int offset = places[token] % PAGE;
  const unsigned from = head * HEAD_DIM + piece * 8;
  store(keys + page + key_place(offset, piece), load(k + (size_t)token * k_stride + from));
  store_value(values + page, offset, piece, load(v + (size_t)token * v_stride + from));
}

// Page from[i] to page to[i] in every layer. Grid: (n, layers), blocks of 256 threads.
extern "C" __global__ void copy_pages(narrow* keys, narrow* values, const int* from, const int* to, int pages,
                                      int kv_heads) {
  settle();
  const size_t size = (size_t)kv_heads * PAGE * HEAD_DIM, layer = (size_t)blockIdx.y * pages;
  const size_t source = (layer + from[blockIdx.x]) * size, target = (layer + to[blockIdx.x]) * size;
  for (size_t at = threadIdx.x * 8; at < size; at += blockDim.x * 8) {
    const uint4 key = load(keys + source + at), value = load(values + source + at);
    store(keys + target + at, key);
    store(values + target + at, value);
  }
}

// Begins a decode step: out[r] = table[tokens[rows[r]]], and counts *step up by one. A row without a live slot (rows[r]
// below 0, or done) is left as it was. width: a multiple of 8. Grid: rows; blocks of 128 threads.
extern "C" __global__ void embed(const narrow* table, const int* tokens, const int* rows, const int* done, float* out,
                                 int* step, int width) {
  settle();
  if (blockIdx.x == 0 && threadIdx.x == 0) *step += 1;
  const int slot = rows[blockIdx.x];
  if (slot < 0 || done[slot]) return;
  const narrow* from = table + (size_t)tokens[slot] * width;
  for (int at = threadIdx.x * 8; at < width; at += blockDim.x * 8) {
    float values[8];
    load_floats(from + at, values);
    store_floats(out + (size_t)blockIdx.x * width + at, values);
  }
}
