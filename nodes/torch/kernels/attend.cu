// One decode step's attention: one new token a row, over the pages of the row's slot (softmax without a second pass:
// Milakov and Gimelshein, "Online normalizer calculation for softmax", algorithm 3; split over blocks as in Dao,
// "Flash-Decoding").
//
// HEAD_DIM: 32, 64, 96 or 128. Everything stays in registers: a warp takes TILE tokens at a time, and loads keys and
// values straight into the shape of the tensor cores' operands (mma.m16n8k16). What is contracted may be in any order
// as long as both operands agree, so a lane's 16 bytes of a key are the two halves of two steps, and its tokens' values
// are the pairs that its own scores will multiply. The query heads of a key head are the rows; 8 of 16 are used.

constexpr int TILE = 16;
#ifndef WARPS
#define WARPS 4
#endif
// Query heads of a block, and blocks that share a key head.
constexpr int QUERIES = SHARE < 8 ? SHARE : 8;
constexpr int GROUPS = (SHARE + 7) / 8;
// 16-byte pieces of a key that a lane holds.
constexpr int KEY_PIECES = HEAD_DIM / 32;
// Dimensions of a value that a lane loads at once, and how often.
constexpr int SPAN = HEAD_DIM % 64 ? 4 : 8;
constexpr int VALUE_PIECES = HEAD_DIM / 8 / SPAN;

__device__ __forceinline__ void multiply(float (&sum)[4], unsigned a0, unsigned a2, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %5}, {%7, %8}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1));
}

// This lane's pieces lane % 4 + 4 j of one head, normed where norm is not null and turned. The 4 lanes of a head (those
// with the same lane / 4) call it together.
__device__ __forceinline__ void ready(const bf16* from, const bf16* norm, float eps, const float* cosine,
                                      const float* sine, uint4 (&to)[KEY_PIECES]) {
  const int first = threadIdx.x % 4;
  float own[KEY_PIECES][8], scale = 1;
#pragma unroll
  for (int j = 0; j < KEY_PIECES; ++j) unpack(load(from + (first + 4 * j) * 8), own[j]);
  if (norm) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < KEY_PIECES; ++j)
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += own[j][i] * own[j][i];
    squares += __shfl_xor_sync(ALL_LANES, squares, 1);
    squares += __shfl_xor_sync(ALL_LANES, squares, 2);
    scale = rsqrtf(squares / HEAD_DIM + eps);
  }
#pragma unroll
  for (int j = 0; j < KEY_PIECES; ++j) {
    const int at = (first + 4 * j) * 8, half = HEAD_DIM / 2;
    const int other = at < half ? at + half : at - half, angle = at < half ? at : other;
    const float sign = at < half ? -1 : 1;
    float partner[8], times[8], c[8], s[8];
    unpack(load(from + other), partner);
    load_floats(cosine + angle, c);
    load_floats(sine + angle, s);
    if (norm) {
      unpack(load(norm + at), times);
#pragma unroll
      for (int i = 0; i < 8; ++i) own[j][i] *= scale * times[i];
      unpack(load(norm + other), times);
#pragma unroll
      for (int i = 0; i < 8; ++i) partner[i] *= scale * times[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) own[j][i] = own[j][i] * c[i] + sign * partner[i] * s[i];
    to[j] = packed(own[j]);
  }
}

// Row r serves slot rows[r]; its token has index position[slot], and position[slot] tokens are cached. qkv
// [rows, (SHARE + 2) * kv_heads, HEAD_DIM] holds the token's query, key and value; query_norm and key_norm [HEAD_DIM]
// may be null (no norm of heads); cosine and sine are [positions, HEAD_DIM / 2]. The turned key and the value are
// written to page pages[slot * max_pages + position / PAGE] of keys and values, which point at one layer; then the row
// attends to position + 1 tokens. out [rows, SHARE * kv_heads, HEAD_DIM]. A row without a live slot (rows[r] below 0,
// or done[slot] not 0) writes and reads nothing.
//
// Grid: (rows * kv_heads * GROUPS, splits), GROUPS = ceil(SHARE / 8); blocks of 32 * WARPS threads. With splits > 1,
// scratch is float [grid.x, splits, min(SHARE, 8), HEAD_DIM + 2] and counters int [grid.x], zero before the first
// launch and after each; with splits = 1 both may be null.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attend(const bf16* qkv, const bf16* query_norm, const bf16* key_norm, float eps, const float* cosine,
           const float* sine, const int* rows, const int* position, const int* done, const int* pages, bf16* keys,
           bf16* values, bf16* out, float* scratch, int* counters, int kv_heads, int max_pages, float scale) {
  __shared__ float weighted[WARPS][QUERIES][HEAD_DIM], tops[WARPS][QUERIES], sums[WARPS][QUERIES];
  __shared__ bool last;
  const int row = blockIdx.x / (kv_heads * GROUPS), head = blockIdx.x / GROUPS % kv_heads;
  const int first_query = blockIdx.x % GROUPS * QUERIES, queries = min(QUERIES, SHARE - first_query);
  const int slot = rows[row];
  if (slot < 0 || done[slot]) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int newest = position[slot], tiles = newest / TILE + 1;
  // Tiles are dealt out in turn to all warps of all splits.
  const int unit = blockIdx.y * WARPS + warp, units = gridDim.y * WARPS;
  pages += (size_t)slot * max_pages;
  qkv += (size_t)row * (SHARE + 2) * kv_heads * HEAD_DIM;
  cosine += (size_t)newest * (HEAD_DIM / 2);
  sine += (size_t)newest * (HEAD_DIM / 2);

  float sum = 0, top = LOWEST, kept[HEAD_DIM / 8][4] = {};
  if (unit < tiles) {
    if ((tiles - 1) % units == unit) {  // the warp that will read the new token writes it
      uint4 pieces[KEY_PIECES];
      const bf16 *key = qkv + (size_t)(SHARE * kv_heads + head) * HEAD_DIM, *value = key + (size_t)kv_heads * HEAD_DIM;
      ready(key, key_norm, eps, cosine, sine, pieces);
      const size_t to = (((size_t)pages[newest / PAGE] * kv_heads + head) * PAGE + newest % PAGE) * HEAD_DIM;
      if (g == 0)
#pragma unroll
        for (int j = 0; j < KEY_PIECES; ++j) store(keys + to + (t + 4 * j) * 8, pieces[j]);
      if (lane < HEAD_DIM / 8) store(values + to + lane * 8, load(value + lane * 8));
      __syncwarp();
    }
    uint4 query[KEY_PIECES];
    ready(qkv + (size_t)(head * SHARE + first_query + min(g, queries - 1)) * HEAD_DIM, query_norm, eps, cosine, sine,
          query);
    scale *= LOG2_E;
    int page = 0;
    for (int tile = unit, turn = 0; tile < tiles; tile += units, ++turn) {
      if (turn % 32 == 0) {
        const int mine = tile + lane * units;
        page = mine < tiles ? pages[mine * TILE / PAGE] : 0;
      }
      const size_t from =
          (((size_t)__shfl_sync(ALL_LANES, page, turn % 32) * kv_heads + head) * PAGE + tile * TILE % PAGE) * HEAD_DIM;
      // Rows after the newest token are not written yet: the newest stands for them, with no weight.
      const int newest_here = newest - tile * TILE;
      uint4 key[2][KEY_PIECES];
      unsigned value[4][VALUE_PIECES][SPAN / 2];
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int j = 0; j < KEY_PIECES; ++j)
          key[n][j] = load(keys + from + min(8 * n + g, newest_here) * HEAD_DIM + (t + 4 * j) * 8);
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int j = 0; j < VALUE_PIECES; ++j) {
          const bf16* at = values + from + min(n / 2 * 8 + 2 * t + n % 2, newest_here) * HEAD_DIM + (g + 8 * j) * SPAN;
          if constexpr (SPAN == 8) {
            const uint4 raw = load(at);
            value[n][j][0] = raw.x, value[n][j][1] = raw.y, value[n][j][2] = raw.z, value[n][j][3] = raw.w;
          } else {
            const uint2 raw = *reinterpret_cast<const uint2*>(at);
            value[n][j][0] = raw.x, value[n][j][1] = raw.y;
          }
        }
      float scores[2][4] = {};  // of tokens 8 n + 2 t and the next, for query g
#pragma unroll
      for (int j = 0; j < KEY_PIECES; ++j)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          multiply(scores[n], query[j].x, query[j].y, key[n][j].x, key[n][j].y);
          multiply(scores[n], query[j].z, query[j].w, key[n][j].z, key[n][j].w);
        }
      float weights[4], highest = LOWEST;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        weights[n] = n / 2 * 8 + 2 * t + n % 2 <= newest_here ? scores[n / 2][n % 2] * scale : LOWEST;
        highest = fmaxf(highest, weights[n]);
      }
      highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 2));
      if (__any_sync(ALL_LANES, highest > top)) {
        const float next = fmaxf(top, highest), shrink = power(top - next);
        top = next;
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; ++i) kept[i][0] *= shrink, kept[i][1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) sum += weights[n] = power(weights[n] - top);
      const unsigned a0 = pack(weights[0], weights[1]), a2 = pack(weights[2], weights[3]);
#pragma unroll
      for (int j = 0; j < VALUE_PIECES; ++j)
#pragma unroll
        for (int i = 0; i < SPAN / 2; ++i) {
          const unsigned v0 = value[0][j][i], v1 = value[1][j][i], v2 = value[2][j][i], v3 = value[3][j][i];
          multiply(kept[j * SPAN + 2 * i], a0, a2, __byte_perm(v0, v1, 0x5410), __byte_perm(v2, v3, 0x5410));
          multiply(kept[j * SPAN + 2 * i + 1], a0, a2, __byte_perm(v0, v1, 0x7632), __byte_perm(v2, v3, 0x7632));
        }
    }
    sum += __shfl_xor_sync(ALL_LANES, sum, 1);
    sum += __shfl_xor_sync(ALL_LANES, sum, 2);
  }

  // Column n of piece j, step i is dimension (j * 8 + n) * SPAN + i; this lane has columns 2 t and 2 t + 1 of query g.
  if (g < queries) {
#pragma unroll
    for (int j = 0; j < VALUE_PIECES; ++j)
#pragma unroll
      for (int i = 0; i < SPAN; ++i)
#pragma unroll
        for (int n = 0; n < 2; ++n) weighted[warp][g][(j * 8 + 2 * t + n) * SPAN + i] = kept[j * SPAN + i][n];
    if (t == 0) tops[warp][g] = top, sums[warp][g] = sum;
  }
  __syncthreads();
  out += ((size_t)row * kv_heads * SHARE + head * SHARE + first_query) * HEAD_DIM;
  const size_t part = (size_t)QUERIES * (HEAD_DIM + 2);
  if (gridDim.y > 1) scratch += (size_t)blockIdx.x * gridDim.y * part;
  for (int at = threadIdx.x; at < queries * HEAD_DIM; at += 32 * WARPS) {
    const int query = at / HEAD_DIM, i = at % HEAD_DIM;
    float highest = LOWEST, total = 0, result = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) highest = fmaxf(highest, tops[w][query]);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float share = power(tops[w][query] - highest);
      total += sums[w][query] * share;
      result += weighted[w][query][i] * share;
    }
    if (gridDim.y == 1) {
      out[at] = down(result / total);
    } else {
      float* to = scratch + blockIdx.y * part + query * (HEAD_DIM + 2);
      to[i] = result;
      if (i == 0) to[HEAD_DIM] = highest, to[HEAD_DIM + 1] = total;
    }
  }
  if (gridDim.y == 1) return;
  // The last block of the row's splits to arrive puts their results together.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0)
    last = atomicInc(reinterpret_cast<unsigned*>(counters) + blockIdx.x, gridDim.y - 1) == gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  for (int at = threadIdx.x; at < queries * HEAD_DIM; at += 32 * WARPS) {
    const volatile float* from = scratch + at / HEAD_DIM * (HEAD_DIM + 2);
    float highest = LOWEST, total = 0, result = 0;
    for (int split = 0; split < gridDim.y; ++split) highest = fmaxf(highest, from[split * part + HEAD_DIM]);
    for (int split = 0; split < gridDim.y; ++split) {
      const float share = power(from[split * part + HEAD_DIM] - highest);
      total += from[split * part + HEAD_DIM + 1] * share;
      result += from[split * part + at % HEAD_DIM] * share;
    }
    out[at] = down(result / total);
  }
}
