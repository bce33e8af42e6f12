// The paged cache: keys and values [layers][pages][kv_heads][PAGE][HEAD_DIM] each.

// Prefill: token t's k and v go to page places[t] / PAGE, offset places[t] % PAGE, of one layer (keys and values point
// at it). k [tokens, kv_heads, HEAD_DIM]; a row of v begins v_stride elements (a multiple of 8) after the one before. A
// negative place is skipped. Blocks of 256 threads over tokens * kv_heads * HEAD_DIM / 8 threads.
extern "C" __global__ void write_cache(const bf16* k, const bf16* v, long long v_stride, const long long* places,
                                       bf16* keys, bf16* values, long long tokens, int kv_heads) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned piece = at % (HEAD_DIM / 8), index = at / (HEAD_DIM / 8);
  const unsigned head = index % kv_heads, token = index / kv_heads;
  if (token >= tokens || places[token] < 0) return;
  const long long page = places[token] / PAGE, offset = places[token] % PAGE;
  const size_t to = (((size_t)page * kv_heads + head) * PAGE + offset) * HEAD_DIM + piece * 8;
  store(keys + to, load(k + (size_t)at * 8));
  store(values + to, load(v + (size_t)token * v_stride + head * HEAD_DIM + piece * 8));
}

// Page from[i] to page to[i] in every layer. Grid: (n, layers), blocks of 256 threads.
extern "C" __global__ void copy_pages(bf16* keys, bf16* values, const int* from, const int* to, int pages,
                                      int kv_heads) {
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
extern "C" __global__ void embed(const bf16* table, const int* tokens, const int* rows, const int* done, bf16* out,
                                 int* step, int width) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *step += 1;
  const int slot = rows[blockIdx.x];
  if (slot < 0 || done[slot]) return;
  const bf16* from = table + (size_t)tokens[slot] * width;
  for (int at = threadIdx.x * 8; at < width; at += blockDim.x * 8)
    store(out + (size_t)blockIdx.x * width + at, load(from + at));
}
