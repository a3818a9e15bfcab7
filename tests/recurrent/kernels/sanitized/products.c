/* Run the compiled product of matrices over its shapes and compare it with plain loops.

     products some|all

   Built with sanitizers, of a kernel that is, too. M, N and K at the edges of chunks, tiles, blocks and
   pieces; both layouts of A and of B, rows of C apart; one to three threads. Exits with 1 at the first
   difference. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gemm { /* as the kernel has it */
  long M, N, K, a_row, a_column, b_row, b_column, c_row, threads;
};

static long runs;

#define CHECK(REAL, NAME, TOLERANCE)                                                              \
  extern const long tiling_##NAME[];                                                              \
  long gemm_room_##NAME(const struct gemm *g);                                                    \
  void gemm_##NAME(const struct gemm *g, REAL *room, const REAL *A, const REAL *B, REAL *C);      \
  static REAL *filled_##NAME(long n, int with_nan) {                                              \
    REAL *array = malloc((size_t)n * sizeof(REAL));                                               \
    for (long i = 0; i < n; ++i)                                                                  \
      array[i] = with_nan ? (REAL)NAN : (REAL)((double)(rand() % 2001) / 1000 - 1);               \
    return array;                                                                                 \
  }                                                                                               \
  static void check_##NAME(long M, long N, long K, int a_first, int b_first, long threads) {      \
    const long c_row = N + 3;                                                                     \
    struct gemm g = {M, N, K, a_first ? K : 1, a_first ? 1 : M, b_first ? N : 1, b_first ? 1 : K, \
                     c_row, threads};                                                             \
    REAL *A = filled_##NAME(M * K, 0), *B = filled_##NAME(K * N, 0);                              \
    REAL *C = filled_##NAME((M - 1) * c_row + N, 1), *room = filled_##NAME(gemm_room_##NAME(&g), 1); \
    gemm_##NAME(&g, room, A, B, C);                                                               \
    for (long m = 0; m < M; ++m)                                                                  \
      for (long n = 0; n < N; ++n) {                                                              \
        double sum = 0;                                                                           \
        for (long k = 0; k < K; ++k)                                                              \
          sum += (double)A[m * g.a_row + k * g.a_column] * (double)B[k * g.b_row + n * g.b_column]; \
        if (!(fabs((double)C[m * c_row + n] - sum) <= TOLERANCE * (double)K)) {                   \
          fprintf(stderr, "C[%ld][%ld] is %.17g, expected %.17g, at M=%ld N=%ld K=%ld, %d %d, "   \
                  "%ld threads\n", m, n, (double)C[m * c_row + n], sum, M, N, K, a_first, b_first, \
                  threads);                                                                       \
          exit(1);                                                                                \
        }                                                                                         \
      }                                                                                           \
    for (long m = 0; m + 1 < M; ++m) /* between the rows of C nothing is written */               \
      for (long n = N; n < c_row; ++n)                                                            \
        if (!isnan(C[m * c_row + n])) fprintf(stderr, "wrote beyond a row\n"), exit(1);           \
    free(A), free(B), free(C), free(room);                                                        \
    ++runs;                                                                                       \
  }                                                                                               \
  static void check_all_##NAME(int every) {                                                       \
    const long chunk = tiling_##NAME[0], tall = tiling_##NAME[1], near = tiling_##NAME[3];        \
    const long block = tiling_##NAME[4];                                                          \
    const long Ms[] = {1, tall - 1, tall + 1, chunk - 1, chunk, chunk + 1, 2 * chunk + 5};        \
    const long Ns[] = {1, block / 2, block / 2 + 1, block, block + 1, 3 * block - 1};             \
    const long Ks[] = {1, near - 1, near, near + 1, 3 * near + 2};                                \
    long turn = 0;                                                                                \
    for (int i = 0; i < 7; ++i)                                                                   \
      for (int j = 0; j < 6; ++j)                                                                 \
        for (int k = 0; k < 5; ++k)                                                               \
          for (int layout = 0; layout < 4; ++layout)                                              \
            if (every || turn++ % 3 == 0)                                                         \
              check_##NAME(Ms[i], Ns[j], Ks[k], layout & 1, layout >> 1, 1 + turn / 3 % 3);       \
  }

CHECK(float, float, 1e-6)
CHECK(double, double, 1e-14)

int main(int count, char **words) {
  const int every = count > 1 && strcmp(words[1], "all") == 0;
  check_all_float(every);
  check_all_double(every);
  printf("%ld products\n", runs);
  return 0;
}
