// The output layer's loss on a chunk of logits [rows, vocabulary], whose rows need no alignment. They are float32:
// rounded to bfloat16 those of a likely token, 20 or 30, would be wrong by up to 0.06, and so would its log-prob. Grid:
// rows; blocks of 256 threads. inverse_temperature is by row.

struct Moments {
  float top, sum, dot;  // with e = exp(heat * (x - top)): sums of e and of e * heat * (x - top), in powers of two
};
__device__ __forceinline__ void raise(Moments& m, float top, float heat) {
  const float fall = (m.top - top) * heat, shrink = power(fall);
  m.dot = m.sum > 0 ? (m.dot + fall * m.sum) * shrink : 0;
  m.sum *= shrink;
  m.top = top;
}
__device__ __forceinline__ Moments joined(Moments a, Moments b, float heat) {
  const float top = fmaxf(a.top, b.top);
  raise(a, top, heat);
  raise(b, top, heat);
  return {top, a.sum + b.sum, a.dot + b.dot};
}

// Of each row's distribution: the target's log-prob, the entropy, and the log of the sum of exponentials; scaled by
// inverse_temperature all of them. entropy may be null.
extern "C" __global__ void __launch_bounds__(256)
    head_forward(const float* logits, const long long* targets, const float* inverse_temperature, float* logprobs,
                 float* entropy, float* lse, int vocabulary) {
  settle();
  constexpr int LOADS = 2;
  __shared__ Moments partial[8];
  const size_t row = blockIdx.x;
  const Logits from = logits_of(logits + row * vocabulary, vocabulary);
  const float inverse = inverse_temperature[row], heat = inverse * LOG2_E;
  Moments own = {LOWEST, 0, 0};
  float less = -1e38f;  // heat * top, but finite
  for (int start = threadIdx.x; start < from.vectors; start += LOADS * blockDim.x) {
    float loaded[LOADS][8];
#pragma unroll
    for (int a = 0; a < LOADS; ++a) fetch_or_none(from, start + a * blockDim.x, loaded[a]);
#pragma unroll
    for (int a = 0; a < LOADS; ++a) {
      const float(&values)[8] = loaded[a];
      float highest = own.top;
#pragma unroll
      for (int i = 0; i < 8; ++i) highest = fmaxf(highest, values[i]);
      if (highest > own.top) {
        raise(own, highest, heat);
        less = fmaxf(highest * heat, -1e38f);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float exponent = values[i] * heat - less, e = power(exponent);
        own.sum += e;
        own.dot += e * fmaxf(exponent, LOWEST);  // 0 times minus infinity is not a number
      }
    }
  }
#pragma unroll
  for (int offset = 16; offset; offset /= 2)
    own = joined(own,
                 {__shfl_xor_sync(ALL_LANES, own.top, offset), __shfl_xor_sync(ALL_LANES, own.sum, offset),
                  __shfl_xor_sync(ALL_LANES, own.dot, offset)},
                 heat);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < blockDim.x / 32; ++w) own = joined(own, partial[w], heat);
  const float log_sum = LN_2 * __log2f(own.sum), target = logits[row * vocabulary + targets[row]];
  logprobs[row] = (target - own.top) * inverse - log_sum;
  lse[row] = own.top * inverse + log_sum;
  if (entropy) entropy[row] = log_sum - own.dot / own.sum * LN_2;
}

// d_logits [rows, vocabulary] = d_logprob * inverse_temperature * (onehot(target) - softmax). A row whose d_logprob is
// 0 is set to 0, its logits unread.
extern "C" __global__ void __launch_bounds__(256)
    head_backward(const float* logits, const long long* targets, const float* inverse_temperature, const float* lse,
                  const float* d_logprob, narrow* d_logits, int vocabulary) {
  settle();
  const size_t row = blockIdx.x;
  const Logits from = logits_of(logits + row * vocabulary, vocabulary);
  narrow* to = d_logits + row * vocabulary;
  const bool aligned = (u64)to % 16 == 0;
  const float inverse = inverse_temperature[row], heat = inverse * LOG2_E, log_sum = lse[row] * LOG2_E;
  const float factor = d_logprob[row] * inverse;
  const int target = (int)targets[row];
  for (int at = threadIdx.x; at < from.vectors; at += blockDim.x) {
    float values[8] = {};
    if (factor != 0) fetch(from, at, values);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float softmax = power(values[i] * heat - log_sum);
      values[i] = factor == 0 ? 0 : factor * ((at * 8 + i == target ? 1 : 0) - softmax);
    }
    const uint4 result = packed(values);
    if (aligned && at * 8 + 8 <= from.count) {
      store(to + at * 8, result);
    } else {
      const unsigned words[4] = {result.x, result.y, result.z, result.w};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (at * 8 + i < from.count) to[at * 8 + i] = (narrow)(words[i / 2] >> (i % 2 * 16));
    }
  }
}
