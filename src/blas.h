// Products of matrices by the library that comes with torch; their addresses are set when the process starts.
#pragma once

#include "functions.h"

namespace penstock {

// Row-major products C = A B + beta C, of A [m, k] and B [k, n]; each may lie transposed in memory.
struct Blas {
  using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                         const int*, const float*, const int*, const float*, float*, const int*);
  using Bf16Gemm = void (*)(int, int, int, int, int, int, float, const Bf16*, int, const Bf16*, int, float, float*, int);

  Sgemm sgemm = nullptr;
  Bf16Gemm bf16_gemm = nullptr;

  void product(bool a_turned, bool b_turned, int m, int n, int k, const float* a, const float* b, float beta,
               float* c) const {
    const float one = 1.0f;
    const int lda = a_turned ? m : k, ldb = b_turned ? k : n;
    // Fortran's matrices are column by column: C^T = B^T A^T.
    sgemm(b_turned ? "T" : "N", a_turned ? "T" : "N", &n, &m, &k, &one, b, &ldb, a, &lda, &beta, c, &n);
  }

  void product(bool a_turned, bool b_turned, int m, int n, int k, const Bf16* a, const Bf16* b, float beta,
               float* c) const {
    constexpr int row_major = 101, as_is = 111, turned = 112;
    bf16_gemm(row_major, a_turned ? turned : as_is, b_turned ? turned : as_is, m, n, k, 1.0f, a, a_turned ? m : k, b,
              b_turned ? k : n, beta, c, n);
  }
};

inline Blas blas;

}  // namespace penstock
