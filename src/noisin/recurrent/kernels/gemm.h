/* The product of two matrices of any strides, C = A B: that of all time steps at once.

   As cells.h, this file is compiled for each REAL. The depth K is cut into pieces whose panels of B
   stay in the caches. Threads share the packing of B and own rows of C. */

#ifndef GEMM
#define GEMM

struct gemm {
  long M, N, K, a_row, a_column, b_row, b_column, c_row, threads;
};

#endif

INLINE long NAME(depth)(const struct gemm *g) { return even(g->K, NEAR); }
INLINE long NAME(panels_of_b)(const struct gemm *g) {
  return NAME(depth)(g) * pieces(g->N, BLOCK) * BLOCK;
}
INLINE long NAME(rows_of_a)(const struct gemm *g) {
  return g->a_column == 1 ? 0 : CHUNK * NAME(depth)(g);
}
INLINE long NAME(own_of_gemm)(const struct gemm *g) { return CHUNK * BLOCK + NAME(rows_of_a)(g); }

/* How many REALs of room a call needs. */
long NAME(gemm_room)(const struct gemm *g) {
  return NAME(panels_of_b)(g) + g->threads * NAME(own_of_gemm)(g);
}

/* Rows of a piece of A, packed tile by tile: for a transposed A, whose columns are in order. */
INLINE void NAME(pack_rows)(const struct gemm *g, const REAL *A, long chunk, long depth,
                            REAL *packed) {
  for (long row = 0, tall; row < chunk; row += tall) {
    tall = height(chunk - row);
    for (long k = 0; k < depth; ++k, packed += tall)
      memcpy(packed, A + row + k * g->a_column, (size_t)tall * sizeof(REAL));
  }
}

/* Rows of a piece of A, in order: where they are, or copied to `rows`. */
INLINE void NAME(rows)(const struct gemm *g, const REAL *A, long chunk, long depth, REAL *rows,
                       const REAL **a) {
  if (g->a_column == 1) {
    for (long r = 0; r < chunk; ++r) a[r] = A + r * g->a_row;
    return;
  }
  for (long first = 0; first < depth; first += 16)
    for (long r = 0; r < chunk; ++r)
      for (long k = first; k < least(first + 16, depth); ++k)
        rows[r * depth + k] = A[r * g->a_row + k * g->a_column];
  for (long r = 0; r < chunk; ++r) a[r] = rows + r * depth;
}

/* Rows of C, for one piece of K; the first one overwrites them. `a` is none if they are packed. */
INLINE void NAME(gemm_rows)(const struct gemm *g, long chunk, long depth, const REAL **a,
                            const REAL *packed, const REAL *panels, int first, REAL *C,
                            VEC sum[CHUNK][2]) {
  for (long b = 0; b < pieces(g->N, BLOCK); ++b) {
    for (long r = 0; r < chunk; ++r)
      for (long v = 0; v < 2; ++v) {
        const long j = b * BLOCK + v * LANES, n = g->N - j;
        sum[r][v] = first || n <= 0 ? (VEC){0} : LOAD(C + r * g->c_row + j);
      }
    if (a) NAME(add_product)(depth, chunk, a, panels + b * depth * BLOCK, sum);
    else NAME(add_packed_product)(depth, chunk, packed, panels + b * depth * BLOCK, sum);
    for (long r = 0; r < chunk; ++r)
      for (long v = 0; v < 2; ++v) {
        const long j = b * BLOCK + v * LANES, n = g->N - j;
        if (n > 0) STORE(C + r * g->c_row + j, sum[r][v]);
      }
  }
}

void NAME(gemm)(const struct gemm *g, REAL *room, const REAL *A, const REAL *B, REAL *C) {
#pragma omp parallel num_threads((int)g->threads)
  {
    const long most = NAME(depth)(g), blocks = pieces(g->N, BLOCK);
    const long start = g->M * THREAD / THREADS, end = g->M * (THREAD + 1) / THREADS;
    REAL *own = room + NAME(panels_of_b)(g) + THREAD * NAME(own_of_gemm)(g);
    VEC(*sum)[2] = (VEC(*)[2])own;
    REAL *rows = own + CHUNK * BLOCK;
    const long tallest = even(end - start, CHUNK);
    const int transposed = g->a_row == 1 && g->a_column != 1;
    for (long k = 0; k < g->K; k += most) {
      const long depth = least(most, g->K - k);
      for (long b = blocks * THREAD / THREADS; b < blocks * (THREAD + 1) / THREADS; ++b)
        NAME(pack)(room + b * depth * BLOCK, B + k * g->b_row + b * BLOCK * g->b_column, depth,
                   g->b_row, g->b_column, least(BLOCK, g->N - b * BLOCK));
      BARRIER
      for (long m = start, chunk; m < end; m += chunk) {
        const REAL *a[CHUNK];
        chunk = least(tallest, end - m);
        const REAL *piece = A + m * g->a_row + k * g->a_column;
        if (transposed) NAME(pack_rows)(g, piece, chunk, depth, rows);
        else NAME(rows)(g, piece, chunk, depth, rows, a);
        NAME(gemm_rows)(g, chunk, depth, transposed ? 0 : a, rows, room, k == 0, C + m * g->c_row,
                        sum);
      }
      BARRIER
    }
  }
}
