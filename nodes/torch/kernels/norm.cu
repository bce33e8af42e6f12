// RMS norm (Zhang and Sennrich, "Root Mean Square Layer Normalization", equation 4) of a sum, and its backward pass.
//
// Width: a multiple of 8, at most 16384. A thread keeps up to NORM_VECTORS vectors of 8 of its row, so blockDim.x is
// the least power of two, from 32 to 512, with blockDim.x * 8 * NORM_VECTORS >= width. blockDim.y rows share a block: 4
// where blockDim.x is 32 (a warp a row), else 1.

constexpr int NORM_VECTORS = 4;

// sum = x + delta, out = sum / rms(sum) * weight, scale[row] = 1 / rms(sum). delta, sum and scale may be null; without
// delta sum is a copy of x. sum may be x. Grid: ceil(rows / blockDim.y).
template <typename Row>
__device__ __forceinline__ void add_norm_of(const Row* x, const narrow* delta, const narrow* weight, Row* sum,
                                            narrow* out, float* scale, long long rows, int width, float eps) {
  const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const size_t base = (size_t)row * width;
  float values[NORM_VECTORS][8];
  uint4 deltas[NORM_VECTORS], weights[NORM_VECTORS];
#pragma unroll
  for (int i = 0; i < NORM_VECTORS; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= width) break;
    load_floats(x + base + at, values[i]);
    if (delta) deltas[i] = load(delta + base + at);
    weights[i] = load(weight + at);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < NORM_VECTORS; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= width) break;
    if (delta) {
      float more[8];
      unpack(deltas[i], more);
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i][j] += more[j];
    }
    if (sum) store_floats(sum + base + at, values[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += values[i][j] * values[i][j];
  }
  const float factor = rsqrtf(row_sum(squares) / width + eps);
  if (scale && threadIdx.x == 0) scale[row] = factor;
#pragma unroll
  for (int i = 0; i < NORM_VECTORS; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= width) break;
    float times[8];
    unpack(weights[i], times);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i][j] *= factor * times[j];
    store(out + base + at, packed(values[i]));
  }
}

// Of the residual stream, which is float32.
extern "C" __global__ void __launch_bounds__(512)
    add_norm(const float* x, const narrow* delta, const narrow* weight, float* sum, narrow* out, float* scale,
             long long rows, int width, float eps) {
  settle();
  add_norm_of(x, delta, weight, sum, out, scale, rows, width, eps);
}

// Of queries and keys, which are added to nothing: takes what add_norm takes, and does not look at delta and sum.
extern "C" __global__ void __launch_bounds__(512)
    norm_heads(const narrow* x, const narrow* delta, const narrow* weight, narrow* sum, narrow* out, float* scale,
               long long rows, int width, float eps) {
  settle();
  add_norm_of(x, nullptr, weight, (narrow*)nullptr, out, scale, rows, width, eps);
}

// With g = d_out * weight: d_x = scale * (g - x * scale^2 * mean(g * x)) + d_residual, and the block's part of
// d_weight = sum over rows of d_out * x * scale, written to d_weight[blockIdx.x]. d_residual may be null, or be d_x.
// The number of blocks is free (each takes rows in turn); shared memory: 4 * width bytes where blockDim.y > 1.
template <typename Row>
__device__ __forceinline__ void norm_backward_of(const narrow* d_out, const Row* x, const float* scale,
                                                 const narrow* weight, const narrow* d_residual, narrow* d_x,
                                                 float* d_weight, long long rows, int width) {
  extern __shared__ float total[];
  float d_weights[NORM_VECTORS][8] = {};
  const long long step = (long long)gridDim.x * blockDim.y;
  for (long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += step) {
    const size_t base = (size_t)row * width;
    const float factor = scale[row];
    float values[NORM_VECTORS][8];
    uint4 gradients[NORM_VECTORS], residuals[NORM_VECTORS];
#pragma unroll
    for (int i = 0; i < NORM_VECTORS; ++i) {
      const int at = (i * blockDim.x + threadIdx.x) * 8;
      if (at >= width) break;
      load_floats(x + base + at, values[i]);
      gradients[i] = load(d_out + base + at);
      if (d_residual) residuals[i] = load(d_residual + base + at);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < NORM_VECTORS; ++i) {
      const int at = (i * blockDim.x + threadIdx.x) * 8;
      if (at >= width) break;
      float gradient[8], times[8];
      unpack(gradients[i], gradient);
      unpack(load(weight + at), times);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        dot += gradient[j] * times[j] * values[i][j];
        d_weights[i][j] += gradient[j] * values[i][j] * factor;
      }
    }
    const float pull = row_sum(dot) / width * factor * factor;
#pragma unroll
    for (int i = 0; i < NORM_VECTORS; ++i) {
      const int at = (i * blockDim.x + threadIdx.x) * 8;
      if (at >= width) break;
      float gradient[8], times[8], result[8];
      unpack(gradients[i], gradient);
      unpack(load(weight + at), times);
      if (d_residual) unpack(residuals[i], result);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        result[j] = (d_residual ? result[j] : 0) + factor * (gradient[j] * times[j] - values[i][j] * pull);
      store(d_x + base + at, packed(result));
    }
  }
  float* to = d_weight + (size_t)blockIdx.x * width;
  for (int turn = 0; turn < blockDim.y; ++turn) {
    if (threadIdx.y == turn) {
#pragma unroll
      for (int i = 0; i < NORM_VECTORS; ++i) {
        const int at = (i * blockDim.x + threadIdx.x) * 8;
        if (at >= width) break;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float sum = (turn ? total[at + j] : 0) + d_weights[i][j];
          if (turn + 1 < blockDim.y)
            total[at + j] = sum;
          else
            to[at + j] = sum;
        }
      }
    }
    if (blockDim.y > 1) __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(512)
    add_norm_backward(const narrow* d_out, const float* x, const float* scale, const narrow* weight,
                      const narrow* d_residual, narrow* d_x, float* d_weight, long long rows, int width) {
  settle();
  norm_backward_of(d_out, x, scale, weight, d_residual, d_x, d_weight, rows, width);
}

extern "C" __global__ void __launch_bounds__(512)
    norm_heads_backward(const narrow* d_out, const narrow* x, const float* scale, const narrow* weight,
                        const narrow* d_residual, narrow* d_x, float* d_weight, long long rows, int width) {
  settle();
  norm_backward_of(d_out, x, scale, weight, d_residual, d_x, d_weight, rows, width);
}
