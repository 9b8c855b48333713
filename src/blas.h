// Products of matrices by the library that comes with torch; their addresses are set when the process starts.
#pragma once

#include <cstddef>

#include "functions.h"
#include "scratch.h"

namespace penstock {

// Row-major products C = A B + beta C, of A [m, k] and B [k, n]; each may be stored transposed.
struct Blas {
  using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                         const int*, const float*, const int*, const float*, float*, const int*);
  using Bf16Gemm = void (*)(int, int, int, int, int, int, float, const Bf16*, int, const Bf16*, int, float, float*, int);

  Sgemm sgemm = nullptr;
  Bf16Gemm bf16_gemm = nullptr;

  void product(bool a_turned, bool b_turned, int m, int n, int k, const float* a, const float* b, float beta,
               float* c) const {
    if (a_turned && n < kNarrow && m >= kNarrow) {
      // Libraries compute a narrow product of a turned matrix at a quarter of the pace of its transpose.
      float* transpose = scratch<float, Use::kTranspose>(size_t(m) * n);
      multiply(!b_turned, false, n, m, k, b, a, 0.0f, transpose);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) c[i * n + j] = transpose[j * m + i] + (beta == 0.0f ? 0.0f : beta * c[i * n + j]);
      return;
    }
    multiply(a_turned, b_turned, m, n, k, a, b, beta, c);
  }

  void product(bool a_turned, bool b_turned, int m, int n, int k, const Bf16* a, const Bf16* b, float beta,
               float* c) const {
    constexpr int row_major = 101, as_is = 111, turned = 112;
    bf16_gemm(row_major, a_turned ? turned : as_is, b_turned ? turned : as_is, m, n, k, 1.0f, a, a_turned ? m : k, b,
              b_turned ? k : n, beta, c, n);
  }

 private:
  static constexpr int kNarrow = 16;
  enum class Use { kTranspose };

  void multiply(bool a_turned, bool b_turned, int m, int n, int k, const float* a, const float* b, float beta,
                float* c) const {
    const float one = 1.0f;
    const int lda = a_turned ? m : k, ldb = b_turned ? k : n;
    // Fortran's matrices are column by column: C^T = B^T A^T.
    sgemm(b_turned ? "T" : "N", a_turned ? "T" : "N", &n, &m, &k, &one, b, &ldb, a, &lda, &beta, c, &n);
  }
};

inline Blas blas;

}  // namespace penstock
