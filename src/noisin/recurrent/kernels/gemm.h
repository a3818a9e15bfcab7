/* The product of two matrices of any strides, C = A B: that of all time steps at once.

   As cells.h, this file is compiled for each REAL. The depth K is cut into pieces whose panels of B
   stay in the caches. Threads share the packing of B and own rows of C.

   One of the matrices may be read or written through masks, factors of its elements, one for each of
   R parts of the product: those of A and of the columns of B and C, or those of B and of the rows of
   A and C, or those of C, which is the sum of R products through a mask each. A mask has the rows of
   its matrix, or fewer, which then repeat: those of one time step. */

#ifndef GEMM
#define GEMM

enum masked { NOTHING, OF_A, OF_B, OF_C };

struct gemm {
  long M, N, K; /* of a part */
  long a_row, a_column, b_row, b_column, c_row, threads;
  long masked, mask_rows, mask_row;
  long parts, a_part, b_part, c_part, mask_part; /* from one part to the next */
};

#endif

/* The row of the mask for a row of the matrix that has it. */
INLINE const REAL *NAME(factors_of)(const struct gemm *g, const REAL *mask, long row) {
  return mask + row % g->mask_rows * g->mask_row;
}

INLINE long NAME(depth)(const struct gemm *g) { return even(g->K, NEAR); }
INLINE long NAME(panels_of_b)(const struct gemm *g) {
  return NAME(depth)(g) * pieces(g->N, BLOCK) * BLOCK;
}
INLINE long NAME(rows_of_a)(const struct gemm *g) {
  return g->a_column == 1 && g->masked != OF_A ? 0 : CHUNK * NAME(depth)(g);
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

/* Rows of A, from row m and column `from` on, in order: where they are, or copied to `rows`. */
INLINE void NAME(rows)(const struct gemm *g, const REAL *A, const REAL *mask, long m, long chunk,
                       long from, long depth, REAL *rows, const REAL **a) {
  const REAL *piece = A + m * g->a_row + from * g->a_column;
  for (long first = 0; first < depth && g->a_column != 1; first += 16)
    for (long r = 0; r < chunk; ++r)
      for (long k = first; k < least(first + 16, depth); ++k)
        rows[r * depth + k] = piece[r * g->a_row + k * g->a_column];
  for (long r = 0; r < chunk; ++r)
    a[r] = g->a_column == 1 ? piece + r * g->a_row : rows + r * depth;
  for (long r = 0; r < chunk && g->masked == OF_A; ++r) {
    const REAL *factors = NAME(factors_of)(g, mask, m + r) + from;
    for (long k = 0; k < depth; ++k) rows[r * depth + k] = a[r][k] * factors[k];
    a[r] = rows + r * depth;
  }
}

/* The panel of a block of columns of B, from row `from` on. */
INLINE void NAME(panel)(const struct gemm *g, const REAL *B, const REAL *mask, long from, long depth,
                        long b, REAL *panel) {
  const long j = b * BLOCK, n = least(BLOCK, g->N - j);
  NAME(pack)(panel, B + from * g->b_row + j * g->b_column, depth, g->b_row, g->b_column, n);
  for (long k = 0; k < depth && g->masked == OF_B; ++k) {
    const REAL *factors = NAME(factors_of)(g, mask, from + k) + j;
    for (long i = 0; i < n; ++i) panel[k * BLOCK + i] *= factors[i];
  }
}

/* Rows of C, from row m on, to which a piece of K is added, or which it overwrites. `a` is none if the
   rows of A are packed. */
INLINE void NAME(gemm_rows)(const struct gemm *g, long m, long chunk, long depth, const REAL **a,
                            const REAL *packed, const REAL *panels, const REAL *mask, int adds,
                            REAL *C, VEC sum[CHUNK][2]) {
  const int masked = g->masked == OF_C;
  for (long b = 0; b < pieces(g->N, BLOCK); ++b) {
    for (long r = 0; r < chunk; ++r)
      for (long v = 0; v < 2; ++v) {
        const long j = b * BLOCK + v * LANES, n = g->N - j;
        sum[r][v] = masked || !adds || n <= 0 ? (VEC){0} : LOAD(C + (m + r) * g->c_row + j);
      }
    if (a) NAME(add_product)(depth, chunk, a, panels + b * depth * BLOCK, sum);
    else NAME(add_packed_product)(depth, chunk, packed, panels + b * depth * BLOCK, sum);
    for (long r = 0; r < chunk; ++r)
      for (long v = 0; v < 2; ++v) {
        const long j = b * BLOCK + v * LANES, n = g->N - j;
        if (n <= 0) continue;
        REAL *c = C + (m + r) * g->c_row + j;
        if (masked) sum[r][v] *= LOAD(NAME(factors_of)(g, mask, m + r) + j);
        if (masked && adds) sum[r][v] += LOAD(c);
        STORE(c, sum[r][v]);
      }
  }
}

/* A part of the product, by the caller's thread with all others; it is added to what is in C. */
INLINE void NAME(gemm_part)(const struct gemm *g, REAL *room, const REAL *A, const REAL *B, REAL *C,
                            const REAL *mask, int adds) {
  const long most = NAME(depth)(g), blocks = pieces(g->N, BLOCK);
  const long start = g->M * THREAD / THREADS, end = g->M * (THREAD + 1) / THREADS;
  REAL *own = room + NAME(panels_of_b)(g) + THREAD * NAME(own_of_gemm)(g);
  VEC(*sum)[2] = (VEC(*)[2])own;
  REAL *rows = own + CHUNK * BLOCK;
  const long tallest = even(end - start, CHUNK);
  const int transposed = g->a_row == 1 && g->a_column != 1 && g->masked != OF_A;
  for (long k = 0; k < g->K; k += most) {
    const long depth = least(most, g->K - k);
    for (long b = blocks * THREAD / THREADS; b < blocks * (THREAD + 1) / THREADS; ++b)
      NAME(panel)(g, B, mask, k, depth, b, room + b * depth * BLOCK);
    BARRIER
    for (long m = start, chunk; m < end; m += chunk) {
      const REAL *a[CHUNK];
      chunk = least(tallest, end - m);
      if (transposed) NAME(pack_rows)(g, A + m + k * g->a_column, chunk, depth, rows);
      else NAME(rows)(g, A, mask, m, chunk, k, depth, rows, a);
      NAME(gemm_rows)(g, m, chunk, depth, transposed ? 0 : a, rows, room, mask, adds || k > 0, C, sum);
    }
    BARRIER
  }
}

void NAME(gemm)(const struct gemm *g, REAL *room, const REAL *A, const REAL *B, REAL *C,
                const REAL *mask) {
#pragma omp parallel num_threads((int)g->threads)
  for (long part = 0; part < g->parts; ++part)
    NAME(gemm_part)(g, room, A + part * g->a_part, B + part * g->b_part, C + part * g->c_part,
                    mask ? mask + part * g->mask_part : 0, g->masked == OF_C && part > 0);
}
