/* Run the compiled product of matrices over its shapes and compare it with plain loops.

     products some|all

   Built with sanitizers, of a kernel that is, too. M, N and K at the edges of chunks, tiles, blocks and
   pieces; both layouts of A and of B, rows of C apart; one to three threads; no masks, and masks of A,
   of B and of C in one to three parts. Exits with 1 at the first difference. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gemm { /* as the kernel has it */
  long M, N, K, a_row, a_column, b_row, b_column, c_row, threads;
  long masked, mask_rows, mask_row, parts, a_part, b_part, c_part, mask_part;
};

enum { NOTHING, OF_A, OF_B, OF_C };

static long runs;

#define CHECK(REAL, NAME, TOLERANCE)                                                              \
  extern const long tiling_##NAME[];                                                              \
  long gemm_room_##NAME(const struct gemm *g);                                                    \
  void gemm_##NAME(const struct gemm *g, REAL *room, const REAL *A, const REAL *B, REAL *C,        \
                   const REAL *mask);                                                            \
  static REAL *filled_##NAME(long n, int with_nan) {                                              \
    REAL *array = malloc((size_t)n * sizeof(REAL));                                               \
    for (long i = 0; i < n; ++i)                                                                  \
      array[i] = with_nan ? (REAL)NAN : (REAL)((double)(rand() % 2001) / 1000 - 1);               \
    return array;                                                                                 \
  }                                                                                               \
  /* The sum of the products of the parts that C[m][n] is in, through their masks. */             \
  static double sum_##NAME(const struct gemm *g, const REAL *A, const REAL *B, const REAL *mask,  \
                           long m, long n) {                                                      \
    const int of = (int)g->masked;                                                                \
    const long first = of == OF_A ? n / g->N : of == OF_B ? m / g->M : 0;                         \
    double sum = 0;                                                                               \
    for (long part = first; part < (of == OF_C ? g->parts : first + 1); ++part)                   \
      for (long k = 0; k < g->K; ++k) {                                                           \
        const long at = of == OF_C ? part * g->K + k : k;                                         \
        const long row = of == OF_B ? k : m, column = of == OF_A ? k : n;                         \
        const double a = (double)A[m * g->a_row + at * g->a_column];                              \
        const double b = (double)B[at * g->b_row + n * g->b_column];                              \
        const long own = of ? row % g->mask_rows * g->mask_row + part * g->mask_part + column : 0; \
        sum += a * b * (of ? (double)mask[own] : 1);                                              \
      }                                                                                           \
    return sum;                                                                                   \
  }                                                                                               \
  static void check_##NAME(long M, long N, long K, int a_first, int b_first, long threads, int of, \
                           long parts, long held) {                                               \
    const long Ms = of == OF_B ? M * parts : M, Ns = of == OF_A ? N * parts : N;                  \
    const long Ks = of == OF_C ? K * parts : K, c_row = Ns + 3;                                   \
    const long a_row = a_first ? Ks : 1, a_column = a_first ? 1 : Ms;                             \
    const long b_row = b_first ? Ns : 1, b_column = b_first ? 1 : Ks;                             \
    const long columns = of == OF_A ? K : N, mask_row = parts * columns + 1;                      \
    const long masked = of == OF_B ? K : M, mask_rows = held && masked % held == 0 ? held : masked; \
    struct gemm g = {M, N, K, a_row, a_column, b_row, b_column, c_row, threads,                   \
                     of, of ? mask_rows : 0, of ? mask_row : 0, parts,                            \
                     of == OF_B ? M * a_row : of == OF_C ? K * a_column : 0,                      \
                     of == OF_A ? N * b_column : of == OF_C ? K * b_row : 0,                      \
                     of == OF_A ? N : of == OF_B ? M * c_row : 0, columns};                       \
    REAL *A = filled_##NAME(Ms * Ks, 0), *B = filled_##NAME(Ks * Ns, 0);                          \
    REAL *mask = of ? filled_##NAME((mask_rows - 1) * mask_row + parts * columns, 0) : 0;         \
    REAL *C = filled_##NAME((Ms - 1) * c_row + Ns, 1), *room = filled_##NAME(gemm_room_##NAME(&g), 1); \
    gemm_##NAME(&g, room, A, B, C, mask);                                                         \
    for (long m = 0; m < Ms; ++m)                                                                 \
      for (long n = 0; n < Ns; ++n) {                                                             \
        const double sum = sum_##NAME(&g, A, B, mask, m, n);                                      \
        if (!(fabs((double)C[m * c_row + n] - sum) <= TOLERANCE * (double)Ks)) {                  \
          fprintf(stderr, "C[%ld][%ld] is %.17g, expected %.17g, at M=%ld N=%ld K=%ld, %d %d, "   \
                  "%ld threads, masks of %d in %ld parts with %ld rows\n", m, n,                  \
                  (double)C[m * c_row + n], sum, M, N, K, a_first, b_first, threads, of, parts,   \
                  mask_rows);                                                                     \
          exit(1);                                                                                \
        }                                                                                         \
      }                                                                                           \
    for (long m = 0; m + 1 < Ms; ++m) /* between the rows of C nothing is written */              \
      for (long n = Ns; n < c_row; ++n)                                                           \
        if (!isnan(C[m * c_row + n])) fprintf(stderr, "wrote beyond a row\n"), exit(1);           \
    free(A), free(B), free(C), free(room), free(mask);                                            \
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
            for (int of = NOTHING; of <= OF_C; ++of) {                                            \
              const long now = turn++, parts = of ? 1 + now % 3 : 1;                              \
              if (!every && now % 7) continue;                                                    \
              const long held = now / 4 % 2 ? 0 : 5;                                              \
              check_##NAME(Ms[i], Ns[j], Ks[k], layout & 1, layout >> 1, 1 + now / 3 % 3, of,     \
                           parts, held);                                                          \
            }                                                                                     \
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
