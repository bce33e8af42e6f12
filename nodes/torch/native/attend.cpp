// Attention of one new token a row over the row's own part of a cache, on the CPU; `native/operators.rs` says what it does.
//
// A row reads as many places as it has, and sums them in an order that depends on nothing else: neither on the other rows
// nor on threads. Torch's own operator would read the longest row's places for all, in an order that changes with that.
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "guard.h"

namespace {
// One for each width of vectors; the processor's is chosen when the program is loaded.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVERY_WIDTH
#endif
#define INLINE inline __attribute__((always_inline))

using Floats = float __attribute__((vector_size(64)));
using Doubles = double __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));
using Words = uint32_t __attribute__((vector_size(64)));

// The bits of numbers of 16.
INLINE Words words_of(const void *from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return __builtin_convertvector(halves, Words);
}

// `lanes` numbers of a type side by side, in the type in which they are added up.
template <class T>
struct Lanes;

template <>
struct Lanes<float> {
  using Wide = float;
  using Vector = Floats;
  static INLINE void load(const float *from, Vector &out) { __builtin_memcpy(&out, from, sizeof out); }
};

template <>
struct Lanes<double> {
  using Wide = double;
  using Vector = Doubles;
  static INLINE void load(const double *from, Vector &out) { __builtin_memcpy(&out, from, sizeof out); }
};

template <>
struct Lanes<at::BFloat16> {
  using Wide = float;
  using Vector = Floats;
  // A bfloat16 is the upper half of a float32.
  static INLINE void load(const at::BFloat16 *from, Vector &out) {
    const Words words = words_of(from) << 16;
    __builtin_memcpy(&out, &words, sizeof out);
  }
};

template <>
struct Lanes<at::Half> {
  using Wide = float;
  using Vector = Floats;
  // The bits of a float16 stand for 2^-112 of it as those of a float32; what is not finite stays so.
  static INLINE void load(const at::Half *from, Vector &out) {
    const Words bits = words_of(from), magnitude = (bits & 0x7fff) << 13;
    Vector value;
    __builtin_memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    Words words;
    __builtin_memcpy(&words, &value, sizeof words);
    words |= (bits & 0x8000) << 16;
    words |= (Words)(magnitude >= 0x7c00 << 13) & 0x7f800000;
    __builtin_memcpy(&out, &words, sizeof out);
  }
};

// What the query heads of one key head have of a row. `scores` is room for `shared * places` numbers.
template <class T>
INLINE void attend(const T *queries, const T *keys, const T *values, T *out, int64_t shared, int64_t places, int64_t dim,
                   double scale, typename Lanes<T>::Wide *scores) {
  using Wide = typename Lanes<T>::Wide;
  using Vector = typename Lanes<T>::Vector;
  constexpr int64_t lanes = sizeof(Vector) / sizeof(Wide);
  // Up to `lanes` numbers, zeros after them.
  auto part = [](const T *from, int64_t left, Vector &out) __attribute__((always_inline)) {
    if (left >= lanes) return Lanes<T>::load(from, out);
    T padded[lanes] = {};
    for (int64_t i = 0; i < left; ++i) padded[i] = from[i];
    Lanes<T>::load(padded, out);
  };
  for (int64_t place = 0; place < places; ++place) {
    for (int64_t head = 0; head < shared; ++head) {
      Vector sum = {};
      for (int64_t at = 0; at < dim; at += lanes) {
        Vector query, key;
        part(queries + head * dim + at, dim - at, query);
        part(keys + place * dim + at, dim - at, key);
        sum += query * key;
      }
      Wide of[lanes];
      __builtin_memcpy(of, &sum, sizeof of);
      for (int64_t half = lanes / 2; half > 0; half /= 2) {
        for (int64_t i = 0; i < half; ++i) of[i] += of[i + half];
      }
      scores[head * places + place] = of[0] * static_cast<Wide>(scale);
    }
  }
  for (int64_t head = 0; head < shared; ++head) {
    Wide *of = scores + head * places;
    const Wide largest = *std::max_element(of, of + places);
    Wide total = 0;
    for (int64_t place = 0; place < places; ++place) {
      of[place] = std::exp(of[place] - largest);
      total += of[place];
    }
    for (int64_t at = 0; at < dim; at += lanes) {
      Vector sum = {};
      for (int64_t place = 0; place < places; ++place) {
        Vector value;
        part(values + place * dim + at, dim - at, value);
        sum += value * of[place];
      }
      for (int64_t i = 0; i < std::min(lanes, dim - at); ++i) out[head * dim + at + i] = static_cast<T>(sum[i] / total);
    }
  }
}

EVERY_WIDTH void attend_floats(const float *q, const float *k, const float *v, float *out, int64_t shared, int64_t places,
                               int64_t dim, double scale, float *scores) {
  attend(q, k, v, out, shared, places, dim, scale, scores);
}

EVERY_WIDTH void attend_doubles(const double *q, const double *k, const double *v, double *out, int64_t shared,
                                int64_t places, int64_t dim, double scale, double *scores) {
  attend(q, k, v, out, shared, places, dim, scale, scores);
}

EVERY_WIDTH void attend_bfloats(const at::BFloat16 *q, const at::BFloat16 *k, const at::BFloat16 *v, at::BFloat16 *out,
                                int64_t shared, int64_t places, int64_t dim, double scale, float *scores) {
  attend(q, k, v, out, shared, places, dim, scale, scores);
}

EVERY_WIDTH void attend_halves(const at::Half *q, const at::Half *k, const at::Half *v, at::Half *out, int64_t shared,
                               int64_t places, int64_t dim, double scale, float *scores) {
  attend(q, k, v, out, shared, places, dim, scale, scores);
}

template <class T, class One>
void rows(const Tensor &q, const Tensor &keys, const Tensor &values, const Tensor &positions, double scale, Tensor &out,
          One one) {
  const int64_t heads = q.size(1), dim = q.size(2), kv_heads = keys.size(1), context = keys.size(2);
  const int64_t shared = heads / kv_heads;
  const T *queries = q.const_data_ptr<T>(), *key = keys.const_data_ptr<T>(), *value = values.const_data_ptr<T>();
  const int64_t *position = positions.const_data_ptr<int64_t>();
  T *into = out.data_ptr<T>();
  // Torch's threads are reached through one of its iterators, over as many numbers as there are jobs: `parallel_for` would
  // have OpenMP linked here as well.
  Tensor jobs = at::empty({q.size(0) * kv_heads}, q.options().dtype(at::kChar));
  const char *first = static_cast<const char *>(jobs.const_data_ptr());
  auto work = [&](char **data, const int64_t *strides, int64_t count, int64_t counts) {
    std::vector<typename Lanes<T>::Wide> scores(shared * context);
    for (int64_t i = 0; i < count * counts; ++i) {
      const int64_t job = data[0] + i % count * strides[0] + i / count * strides[1] - first;
      const int64_t places = position[job / kv_heads] + 1, from = job * shared * dim;
      one(queries + from, key + job * context * dim, value + job * context * dim, into + from, shared, places, dim, scale,
          scores.data());
    }
  };
  at::TensorIterator::nullary_op(jobs).for_each(work, /*grain_size=*/1);
}
}  // namespace

extern "C" char *rlpipe_attend_rows(const Tensor *q, const Tensor *keys, const Tensor *values, const Tensor *positions,
                                    double scale, Tensor **out) {
  return rlpipe::guarded([&] {
    const bool fits = q->dim() == 3 && keys->dim() == 4 && keys->sizes() == values->sizes() &&
                      keys->size(0) == q->size(0) && keys->size(3) == q->size(2) && keys->size(1) > 0 &&
                      q->size(1) % keys->size(1) == 0 && positions->numel() == q->size(0);
    TORCH_CHECK(fits, "queries ", q->sizes(), ", keys ", keys->sizes(), ", values ", values->sizes(), " and positions ",
                positions->sizes(), " do not go together");
    for (const Tensor *tensor : {q, keys, values, positions}) {
      TORCH_CHECK(tensor->is_cpu() && tensor->is_contiguous(), "rows are attended to on the CPU, in dense tensors");
    }
    TORCH_CHECK(positions->scalar_type() == at::kLong, "positions are int64");
    TORCH_CHECK(keys->scalar_type() == q->scalar_type() && values->scalar_type() == q->scalar_type(), "of one type");
    const int64_t *position = positions->const_data_ptr<int64_t>();
    for (int64_t row = 0; row < q->size(0); ++row) {
      TORCH_CHECK(position[row] >= 0 && position[row] < keys->size(2), "position ", position[row], " of row ", row,
                  " lies outside of ", keys->size(2), " places");
    }
    Tensor result = at::empty(q->sizes(), q->options());
    switch (q->scalar_type()) {
      case at::kFloat: rows<float>(*q, *keys, *values, *positions, scale, result, attend_floats); break;
      case at::kDouble: rows<double>(*q, *keys, *values, *positions, scale, result, attend_doubles); break;
      case at::kBFloat16: rows<at::BFloat16>(*q, *keys, *values, *positions, scale, result, attend_bfloats); break;
      case at::kHalf: rows<at::Half>(*q, *keys, *values, *positions, scale, result, attend_halves); break;
      default: TORCH_CHECK(false, "there is no attention of rows in ", q->scalar_type());
    }
    *out = new Tensor(result);
  });
}
