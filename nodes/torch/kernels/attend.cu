// One decode step's attention: one new token a row, over the pages of the row's slot (softmax without a second pass:
// Milakov and Gimelshein, "Online normalizer calculation for softmax", algorithm 3; split over blocks as in Dao,
// "Flash-Decoding").
//
// HEAD_DIM: 32, 64, 96 or 128. A warp takes TILE tokens at a time. Its keys and values come by cp.async, STAGES tiles
// deep; a lane copies what it will read itself, so that shared memory is no more than registers that are filled later:
// there is nothing to wait for but one's own copies, and no bank conflict. The cache has the order of the operands of
// the tensor cores (mma.m16n8k16): keys and values are the 16 rows, up to 8 query heads the columns. What is contracted
// may be in any order as long as both operands agree, so a lane's 16 bytes of a key are the two halves of two steps.

constexpr int WARPS = 2, STAGES = HEAD_DIM > 64 ? 2 : 4;
// Query heads of a block, and blocks that share a key head.
constexpr int QUERIES = SHARE < 8 ? SHARE : 8;
constexpr int GROUPS = (SHARE + 7) / 8;
// Vectors of 8 that a lane has of a tile's keys, and of its values.
constexpr int VECTORS = HEAD_DIM / 16;
// Scores may pass what they are measured from by this power of two before sums are scaled anew.
constexpr float SLACK = 8;

__device__ __forceinline__ void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                         unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." NARROW "." NARROW
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Of an 8 x 8 matrix of pairs, a row to 4 lanes, its transpose.
__device__ __forceinline__ unsigned transposed(unsigned pair) {
  unsigned result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}
__device__ __forceinline__ void copy_later(uint4* to, const narrow* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
}

// This lane's pieces lane % 4 + 4 j of one head, normed where norm is not null and turned. The 4 lanes of a head (those
// with the same lane / 4) call it together.
__device__ __forceinline__ void ready(const narrow* from, const narrow* norm, float eps, const float* cosine,
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
// The kernel ahead in the stream may still be at work on qkv, and on nothing else that is read here: the first tiles of the
// cache are fetched while it ends.
//
// Grid: (rows * kv_heads * GROUPS, splits), GROUPS = ceil(SHARE / 8); blocks of 32 * WARPS threads. With splits > 1,
// scratch is float [grid.x, splits, min(SHARE, 8), HEAD_DIM + 2] and counters int [grid.x], zero before the first
// launch and after each; with splits = 1 both may be null.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    attend(const narrow* qkv, const narrow* query_norm, const narrow* key_norm, float eps, const float* cosine,
           const float* sine, const int* rows, const int* position, const int* done, const int* pages, narrow* keys,
           narrow* values, narrow* out, float* scratch, int* counters, int kv_heads, int max_pages, float scale) {
  __shared__ uint4 staged[WARPS][STAGES][2 * VECTORS][32];
  __shared__ uint4 fresh[KEY_PIECES + VALUE_PIECES][32];  // the new token's key and value, as a lane holds them
  __shared__ float tops[WARPS][8], sums[WARPS][8];
  __shared__ bool last;
  const int row = blockIdx.x / (kv_heads * GROUPS), head = blockIdx.x / GROUPS % kv_heads;
  const int first_query = blockIdx.x % GROUPS * QUERIES, queries = min(QUERIES, SHARE - first_query);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  // Tiles are dealt out in turn to all warps of all splits.
  const int unit = blockIdx.y * WARPS + warp, units = gridDim.y * WARPS;
  const int slot = rows[row];
  if (slot < 0) return;
  pages += (size_t)slot * max_pages;
  auto page_of = [&](int turn) { return pages[min((unit + turn * units) * TILE / PAGE, max_pages - 1)]; };
  int page = page_of(lane);  // of 32 turns, before it is known how many there are
  const int newest = position[slot], tiles = newest / TILE + 1;
  if (done[slot]) return;

  // Of query heads 2 t and 2 t + 1: sums over this lane's tokens, tops over the warp's. kept[i] is of dimensions
  // (values' pieces) 2 i and 2 i + 1 of column g.
  float sum[2] = {}, top[2] = {LOWEST, LOWEST}, kept[HEAD_DIM / 16][4] = {};
  if (unit >= tiles) settle();
  if (unit < tiles) {
    const size_t stride = (size_t)kv_heads * PAGE * HEAD_DIM;
    auto copy = [&](int turn) {
      if (turn && turn % 32 == 0) page = page_of(turn + lane);
      const int tile = unit + turn * units;
      const size_t from =
          __shfl_sync(ALL_LANES, page, turn % 32) * stride + (head * PAGE + tile * TILE % PAGE) * HEAD_DIM;
      uint4(*to)[32] = staged[warp][turn % STAGES];
      if (tile < tiles) {
#pragma unroll
        for (int p = 0; p < VECTORS; ++p) copy_later(&to[p][lane], keys + from + (p * 32 + lane) * 8);
#pragma unroll
        for (int p = 0; p < VECTORS; ++p) copy_later(&to[VECTORS + p][lane], values + from + (p * 32 + lane) * 8);
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int turn = 0; turn < STAGES - 1; ++turn) copy(turn);
    settle();

    qkv += (size_t)row * (SHARE + 2) * kv_heads * HEAD_DIM;
    cosine += (size_t)newest * (HEAD_DIM / 2);
    sine += (size_t)newest * (HEAD_DIM / 2);
    uint4 query[KEY_PIECES];
    ready(qkv + (size_t)(head * SHARE + first_query + min(g, queries - 1)) * HEAD_DIM, query_norm, eps, cosine, sine,
          query);
    scale *= LOG2_E;
    if ((tiles - 1) % units == unit) {  // the warp that attends to the new token also writes it, for later steps
      const narrow *key = qkv + (size_t)(SHARE * kv_heads + head) * HEAD_DIM, *value = key + kv_heads * HEAD_DIM;
      const int offset = newest % PAGE;
      const size_t to = pages[newest / PAGE] * stride + head * PAGE * HEAD_DIM;
      uint4 pieces[KEY_PIECES];
      ready(key, key_norm, eps, cosine, sine, pieces);
#pragma unroll
      for (int j = 0; j < KEY_PIECES; ++j) {
        fresh[j][lane] = pieces[j];
        if (g == 0) store(keys + to + key_place(offset, t + 4 * j), pieces[j]);
      }
      if (lane < HEAD_DIM / 8) store_value(values + to, offset, lane, load(value + lane * 8));
#pragma unroll
      for (int j = 0; j < VALUE_PIECES; ++j)
#pragma unroll
        for (int i = 0; i < SPAN / 2; ++i)
          reinterpret_cast<unsigned*>(fresh[KEY_PIECES + j] + lane)[i] =
              reinterpret_cast<const unsigned*>(value + (g + 8 * j) * SPAN)[i];
    }
#pragma unroll 1
    for (int turn = 0; unit + turn * units < tiles; ++turn) {
      copy(turn + STAGES - 1);
      asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
      const int newest_here = newest - (unit + turn * units) * TILE;
      const uint4(*from)[32] = staged[warp][turn % STAGES];
      uint4 key[2][KEY_PIECES];
      unsigned value[4][VALUE_PIECES][SPAN / 2];
#pragma unroll
      for (int p = 0; p < VECTORS; ++p) {
        key[p / KEY_PIECES][p % KEY_PIECES] = from[p][lane];
        const uint4 raw = from[VECTORS + p][lane];
        const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (p * 4 + i) / (SPAN / 2);
          value[at / VALUE_PIECES][at % VALUE_PIECES][i % (SPAN / 2)] = words[i];
        }
      }
      if (newest_here < TILE) {  // what the cache holds after the new token is no token: the new one stands for it
#pragma unroll
        for (int j = 0; j < KEY_PIECES; ++j) {
          const uint4 piece = fresh[j][lane];
#pragma unroll
          for (int n = 0; n < 2; ++n)
            if (8 * n + g >= newest_here) key[n][j] = piece;
        }
#pragma unroll
        for (int j = 0; j < VALUE_PIECES; ++j)
#pragma unroll
          for (int i = 0; i < SPAN / 2; ++i) {
            const unsigned pair = reinterpret_cast<const unsigned*>(fresh[KEY_PIECES + j] + lane)[i];
#pragma unroll
            for (int n = 0; n < 4; ++n)
              if (n / 2 * 8 + 2 * t + n % 2 >= newest_here) value[n][j][i] = pair;
          }
      }
      float scores[4] = {};  // tokens g and g + 8, each for queries 2 t and 2 t + 1
#pragma unroll
      for (int j = 0; j < KEY_PIECES; ++j) {
        multiply(scores, key[0][j].x, key[1][j].x, key[0][j].y, key[1][j].y, query[j].x, query[j].y);
        multiply(scores, key[0][j].z, key[1][j].z, key[0][j].w, key[1][j].w, query[j].z, query[j].w);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[i] = g + i / 2 * 8 <= newest_here ? scores[i] * scale : LOWEST;
      const float highest[2] = {fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
      if (__any_sync(ALL_LANES, highest[0] > top[0] + SLACK || highest[1] > top[1] + SLACK)) {
#pragma unroll
        for (int q = 0; q < 2; ++q) {
          float next = fmaxf(top[q], highest[q]);
#pragma unroll
          for (int offset = 4; offset < 32; offset *= 2) next = fmaxf(next, __shfl_xor_sync(ALL_LANES, next, offset));
          // A whole power of two: then a weight is rounded alike however the tokens are dealt out, and a
          // row's result hardly depends on splits.
          next = ceilf(next);
          const float shrink = power(top[q] - next);
          top[q] = next;
          sum[q] *= shrink;
#pragma unroll
          for (int i = 0; i < HEAD_DIM / 16; ++i) kept[i][q] *= shrink, kept[i][2 + q] *= shrink;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i % 2] += scores[i] = power(scores[i] - top[i % 2]);
      const unsigned b0 = transposed(pack(scores[0], scores[1])), b1 = transposed(pack(scores[2], scores[3]));
#pragma unroll
      for (int j = 0; j < VALUE_PIECES; ++j)
#pragma unroll
        for (int i = 0; i < SPAN / 2; ++i) {
          const unsigned v0 = value[0][j][i], v1 = value[1][j][i], v2 = value[2][j][i], v3 = value[3][j][i];
          multiply(kept[j * SPAN / 2 + i], __byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                   __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632), b0, b1);
        }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#pragma unroll
    for (int q = 0; q < 2; ++q)
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) sum[q] += __shfl_xor_sync(ALL_LANES, sum[q], offset);
  }

  // The warps' results, over the stages, which are read no more.
  static_assert(sizeof(staged) >= sizeof(float) * WARPS * 8 * HEAD_DIM, "room for the results");
  __syncthreads();
  auto weighted = reinterpret_cast<float (*)[8][HEAD_DIM]>(staged);
#pragma unroll
  for (int j = 0; j < VALUE_PIECES; ++j)
#pragma unroll
    for (int i = 0; i < SPAN / 2; ++i)
#pragma unroll
      for (int n = 0; n < 4; ++n)
        weighted[warp][2 * t + n % 2][(g + 8 * j) * SPAN + 2 * i + n / 2] = kept[j * SPAN / 2 + i][n];
  if (g == 0)
#pragma unroll
    for (int q = 0; q < 2; ++q) tops[warp][2 * t + q] = top[q], sums[warp][2 * t + q] = sum[q];
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
    const float* from = scratch + at / HEAD_DIM * (HEAD_DIM + 2);
    float highest = LOWEST, total = 0, result = 0;
#pragma unroll 4
    for (int split = 0; split < gridDim.y; ++split) highest = fmaxf(highest, __ldcg(from + split * part + HEAD_DIM));
#pragma unroll 4
    for (int split = 0; split < gridDim.y; ++split) {
      const float share = power(__ldcg(from + split * part + HEAD_DIM) - highest);
      total += __ldcg(from + split * part + HEAD_DIM + 1) * share;
      result += __ldcg(from + split * part + at % HEAD_DIM) * share;
    }
    out[at] = down(result / total);
  }
}
