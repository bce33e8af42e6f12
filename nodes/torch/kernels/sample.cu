// Draws the next token of each row, with its log-prob under the distribution drawn from.
//
// Logits, with stop ids held back before stops_from, are divided by the temperature and cut: to the top_k largest, then
// to the fewest that reach top_p of what is left, then to those with at least min_p of the largest's probability. Each
// cut is a threshold on the value: what equals the last kept value is kept too. Then a uniform number is looked up in
// the cumulative sum over a fixed order: by thread, then by place. Sums of probabilities are integers (of 2^-40 of the
// largest), so that they are exact in any order and a token of probability zero is never drawn.

constexpr float UNIT = 1099511627776.0f;  // 2^40
// Steps that one look at a row can tell apart, and the powers of two of probability that the first look spreads them
// over.
constexpr int WINDOW = 2048;
constexpr float REACH = 20;

// As `rng::uniform` of the host, bit for bit: (draw + 1/2) * 2^-48.
__device__ __forceinline__ u64 mix(u64 bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}
__device__ __forceinline__ u64 draw(u64 key, u64 index) {
  const u64 golden = 0x9e3779b97f4a7c15;
  return mix(mix(key ^ golden) + golden * (index + 1)) >> 16;
}
// The numbers themselves, to compare with the host's. Grid: count blocks of one thread.
extern "C" __global__ void uniforms(const u64* keys, const u64* indices, double* out) {
  settle();
  out[blockIdx.x] = (draw(keys[blockIdx.x], indices[blockIdx.x]) + 0.5) * 0x1p-48;
}

// Below cut becomes minus infinity; what is not a number stays.
__device__ __forceinline__ void cut_below(float (&values)[8], float cut) {
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = values[i] < cut ? minus_infinity() : values[i];
}

// Exclusive prefix sum over the block, and the total; exact.
__device__ __forceinline__ u64 prefix(u64 own, u64& total) {
  __shared__ u64 totals[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u64 sum = own;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const u64 before = __shfl_up_sync(ALL_LANES, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == 31) totals[warp] = sum;
  __syncthreads();
  u64 result = sum - own;
  total = 0;
  for (int w = 0; w < blockDim.x / 32; ++w) {
    if (w < warp) result += totals[w];
    total += totals[w];
  }
  __syncthreads();
  return result;
}

struct Mass {
  float top;      // of the row
  float own_top;  // of this thread's elements
  u64 own;        // this thread's sum of exp(heat * (x - top)), in units of 2^-40
  bool broken;    // a logit is not a number or infinite, or none is left
};

// heat: log2(e) / temperature.
template <bool CUT>
__device__ __forceinline__ Mass weigh(const Logits& row, float heat, float cut) {
  constexpr int LOADS = 2;
  __shared__ float tops[32];
  float top = LOWEST, sum = 0;
  for (int start = threadIdx.x; start < row.vectors; start += LOADS * blockDim.x) {
    float loaded[LOADS][8];
#pragma unroll
    for (int a = 0; a < LOADS; ++a) fetch_or_none(row, start + a * blockDim.x, loaded[a]);
#pragma unroll
    for (int a = 0; a < LOADS; ++a) {
      float(&values)[8] = loaded[a];
      if (CUT) cut_below(values, cut);
      float highest = top;
#pragma unroll
      for (int i = 0; i < 8; ++i) highest = fmaxf(highest, values[i]);
      if (highest > top) {
        sum *= power((top - highest) * heat);
        top = highest;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += power((values[i] - top) * heat);
    }
  }
  float highest = warp_max(top);
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = highest;
  __syncthreads();
  highest = warp_max(threadIdx.x % 32 < blockDim.x / 32 ? tops[threadIdx.x % 32] : LOWEST);
  sum *= power((top - highest) * heat);
  const bool broken = __syncthreads_or(!(sum < 1e30f)) || highest == LOWEST;
  return {highest, top, (u64)(sum * UNIT), broken};
}

// A float as an unsigned number of the same order.
__device__ __forceinline__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

template <typename See>
__device__ __forceinline__ void each(const Logits& row, See see) {
  for (int at = threadIdx.x; at < row.vectors; at += blockDim.x) {
    float values[8];
    fetch(row, at, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) see(values[i]);
  }
}

// The largest value such that what is at least that large reaches `limit`: a number of elements, or a mass in units of
// 2^-40; LOWEST where all together do not reach it. A look adds up the values of [least, most] by steps down from most,
// finds the step that reaches the limit, and what values it has: the next look is at those alone.
__device__ __noinline__ float threshold(const Logits& row, float heat, float top, bool by_mass, u64 limit) {
  __shared__ u64 amounts[WINDOW];
  __shared__ int found;
  __shared__ u64 earlier;
  __shared__ unsigned lowest, highest;
  const int share = WINDOW / blockDim.x;
  float most = top, least = LOWEST, steps = (WINDOW - 1) / REACH * heat;
  u64 reached = 0;
  // -1 where the look is not at x. The last step holds all that is further down.
  auto step_of = [&](float x) {
    return x >= least && x <= most ? (int)fminf((most - x) * steps, WINDOW - 1) : -1;
  };
  while (true) {
    for (int i = threadIdx.x; i < WINDOW; i += blockDim.x) amounts[i] = 0;
    if (threadIdx.x == 0) found = -1, lowest = ~0u, highest = 0;
    __syncthreads();
    u64 rest = 0;
    each(row, [&](float x) {
      const int step = step_of(x);
      if (step < 0) return;
      const u64 amount = by_mass ? (u64)(power((x - top) * heat) * UNIT) : 1;
      if (step == WINDOW - 1)
        rest += amount;
      else if (amount)
        atomicAdd(amounts + step, amount);
    });
    if (rest) atomicAdd(amounts + WINDOW - 1, rest);
    __syncthreads();
    u64 own = 0, total;
    for (int i = 0; i < share; ++i) own += amounts[threadIdx.x * share + i];
    u64 sum = reached + prefix(own, total);
    if (sum < limit && limit <= sum + own) {
      int i = threadIdx.x * share;
      while (sum + amounts[i] < limit) sum += amounts[i++];
      found = i, earlier = sum;
    }
    __syncthreads();
    const int step = found;
    if (step < 0) return LOWEST;
    unsigned low = ~0u, high = 0;
    each(row, [&](float x) {
      if (step_of(x) == step) low = min(low, key_of(x)), high = max(high, key_of(x));
    });
    if (low <= high) atomicMin(&lowest, low), atomicMax(&highest, high);
    __syncthreads();
    const float from = value_of(lowest), to = value_of(highest);
    reached = earlier;
    __syncthreads();
    // Values so near to each other that no step parts them are one.
    if (from == to || (from == least && to == most)) return from;
    most = to, least = from;
    steps = fminf((WINDOW - 1) / (to - from), 1e38f);
  }
}

// Row r draws for slot rows[r] from row logit_row[r] (r where logit_row is null) of logits [.., vocabulary], whose rows
// need no alignment. By slot: temperature (0: the largest logit, the first of equals, its log-prob at temperature 1
// without cuts), top_k (0: off), top_p (1: off), min_p (0: off), seed, stop_ids [slots, stop_width] padded with -1,
// stops_from (the first index at which a stop id may be drawn), end (the index after the last token that may be drawn),
// position.
//
// The token has index position[slot] + 1, which becomes the position; uniform number: rng::uniform(seed, index). Writes
// tokens[slot] and, at [*step % ring][r] of ids and logprobs [ring, rows of the grid], the token and its log-prob,
// which is not a number where the logits were not finite. done[slot] becomes 1 when a stop id was drawn, the next index
// is end, or the logits were not finite. A row without a live slot (rows[r] below 0, or done) writes id -1 and log-prob
// 0, and nothing else. step may be null: 0.
//
// Grid: rows; blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(256, 4)
    sample(const float* logits, const int* logit_row, const int* rows, const float* temperature, const int* top_k,
           const float* top_p, const float* min_p, const u64* seed, const int* stop_ids, int stop_width,
           const int* stops_from, const int* end, int* position, int* done, int* tokens, const int* step, int ring,
           int* ids, float* logprobs, int vocabulary) {
  settle();
  __shared__ int chosen, token;
  __shared__ float chosen_top;
  __shared__ u64 rest, own;
  const int row = blockIdx.x, slot = rows[row];
  const size_t place = (size_t)(step ? *step % ring : 0) * gridDim.x + row;
  if (slot < 0 || done[slot]) {
    if (threadIdx.x == 0) ids[place] = -1, logprobs[place] = 0;
    return;
  }
  const int index = position[slot] + 1, last_index = end[slot] - 1;
  const int* stops = stop_ids + (size_t)slot * stop_width;
  const float heat_of = temperature[slot];
  const bool greedy = heat_of == 0;
  const float heat = greedy ? LOG2_E : LOG2_E / heat_of;
  const int k = greedy ? 0 : top_k[slot];
  const float p = greedy ? 1 : top_p[slot], least = greedy ? 0 : min_p[slot];
  const u64 number = draw(seed[slot], index);
  Logits from = logits_of(logits + (size_t)(logit_row ? logit_row[row] : row) * vocabulary, vocabulary);
  if (index < stops_from[slot]) from.held = stop_width, from.stops = stops;

  Mass mass = weigh<false>(from, heat, LOWEST);
  float cut = LOWEST;
  u64 total;
  if (!mass.broken && (k > 0 || p < 1 || least > 0)) {
    if (k > 0 && k < vocabulary) {
      cut = threshold(from, heat, mass.top, false, k);
      mass = weigh<true>(from, heat, cut);
    }
    if (p < 1) {
      prefix(mass.own, total);
      const u64 limit = (u64)((double)total * p);
      cut = fmaxf(cut, threshold(from, heat, mass.top, true, limit ? limit : 1));
    }
    if (least > 0) cut = fmaxf(cut, mass.top + __log2f(least) / heat);
    mass = weigh<true>(from, heat, cut);
  }
  const u64 before = prefix(mass.own, total);
  if (threadIdx.x == 0) token = greedy ? 0x7fffffff : 0;
  __syncthreads();
  if (mass.broken) {
    if (threadIdx.x == 0) token = 0;
  } else if (greedy) {
    if (mass.own_top == mass.top) {
      int first = 0x7fffffff;
      for (int at = threadIdx.x; at < from.vectors && first == 0x7fffffff; at += blockDim.x) {
        float values[8];
        fetch(from, at, values);
#pragma unroll
        for (int i = 7; i >= 0; --i)
          if (values[i] == mass.top) first = at * 8 + i;
      }
      atomicMin(&token, first);
    }
  } else {
    // floor(uniform * total): the number is odd / 2^49.
    const u64 odd = 2 * number + 1;
    const u64 target = (__umul64hi(total, odd) << 15) | ((total * odd) >> 49);
    if (before <= target && target - before < mass.own) {
      chosen = threadIdx.x, chosen_top = mass.own_top;
      rest = target - before, own = mass.own;
    }
    __syncthreads();
    if (threadIdx.x < 32) {  // the chosen thread's elements, dealt to a warp
      auto weight = [&](const float (&values)[8], int i) {
        return (u64)(power((values[i] - chosen_top) * heat) * UNIT);
      };
      const int stride = 32 * blockDim.x, start = chosen + threadIdx.x * blockDim.x;
      u64 sum = 0;
      for (int at = start; at < from.vectors; at += stride) {
        float values[8];
        fetch(from, at, values);
        cut_below(values, cut);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += weight(values, i);
      }
      u64 reach = sum;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const u64 earlier = __shfl_up_sync(ALL_LANES, reach, offset);
        if (threadIdx.x >= offset) reach += earlier;
      }
      const u64 whole = __shfl_sync(ALL_LANES, reach, 31);
      const u64 goal = min((u64)(((double)rest + 0.5) / (double)own * (double)whole), whole - 1);
      u64 walked = reach - sum;
      if (walked <= goal && goal < reach) {
        bool is_found = false;
        for (int at = start; at < from.vectors && !is_found; at += stride) {
          float values[8];
          fetch(from, at, values);
          cut_below(values, cut);
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            walked += weight(values, i);
            if (!is_found && walked > goal) {
              is_found = true;
              token = at * 8 + i;
            }
          }
        }
      }
    }
  }
  __syncthreads();
  if (threadIdx.x) return;
  const int drawn = token;
  const float logit = from.from[drawn];
  const float log_total = LN_2 * __log2f((float)total * (1 / UNIT));
  logprobs[place] = mass.broken ? __uint_as_float(0x7fc00000u) : (logit - mass.top) * heat * LN_2 - log_total;
  ids[place] = drawn;
  tokens[slot] = drawn;
  position[slot] = index;
  bool stop = mass.broken || index >= last_index;
  for (int i = 0; i < stop_width && stops[i] >= 0; ++i) stop |= stops[i] == drawn;
  if (stop) done[slot] = 1;
}
