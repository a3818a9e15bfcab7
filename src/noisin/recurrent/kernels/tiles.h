/* Vectors, and the product of rows with a block of columns, in tiles that fit into registers.

   As cells.h, this file is compiled for each REAL. */

#include <stddef.h>
#include <string.h>

#ifndef TILES
#define TILES

#define CHUNK 96 /* rows at a time */
#ifndef NEAR /* tests have less, so that small products are in several pieces, too */
#define NEAR 1024 /* of K: a panel of so many rows is read in order, and fits into the second cache */
#endif
#ifndef INLINE /* tests do without it, which takes a tenth of the time to compile */
#define INLINE static inline __attribute__((always_inline))
#endif
#define OUTLINE static __attribute__((noinline))

/* A tile has at most TALL rows, and at least LOW where there are more rows than that. */
#define UP_TO_6(X) X(1) X(2) X(3) X(4) X(5) X(6)
#if defined(__AVX512F__)
#define BYTES 64
#define TALL 12
#define EACH_HEIGHT(X) UP_TO_6(X) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#if defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define TALL 6
#define EACH_HEIGHT(X) UP_TO_6(X)
#endif

#define LOW ((TALL + 2) / 2)

#define ONE(rows) +1
_Static_assert(0 EACH_HEIGHT(ONE) == TALL, "there is a tile of each height");
_Static_assert(0 < LOW && LOW <= TALL && TALL <= CHUNK, "a tile has at most the rows of a chunk");
_Static_assert(sizeof(long) == 8, "sizes and indices are long, and ctypes passes 64 bits");

/* Keep a compiler from reading a panel once per row, as it does where a tile leaves registers free. */
#if defined(__x86_64__)
#define IN_REGISTERS(a, b) __asm__("" : "+v"(a), "+v"(b))
#elif defined(__aarch64__)
#define IN_REGISTERS(a, b) __asm__("" : "+w"(a), "+w"(b))
#else
#define IN_REGISTERS(a, b)
#endif

INLINE long least(long a, long b) { return a < b ? a : b; }

/* The number of pieces of at most `most`, and the size of the next one if they are about equal. */
INLINE long pieces(long all, long most) { return (all + most - 1) / most; }
INLINE long even(long all, long most) { return all > 0 ? pieces(all, pieces(all, most)) : 0; }

/* The rows of the next tile: tiles of equal height, because low ones are slow. 20 are 5 + 5 + 5 + 5. */
INLINE long height(long left) { return even(left, TALL); }

#endif

#define LANES (BYTES / (long)sizeof(REAL))
#define BLOCK (2 * LANES)

typedef REAL NAME(vec) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
#define VEC NAME(vec)

typedef INTEGER NAME(mask) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
#define MASK NAME(mask)

INLINE VEC NAME(all)(REAL a) { return a - (VEC){0}; }
INLINE VEC NAME(pick)(MASK m, VEC yes, VEC no) {
  return (VEC)((m & (MASK)yes) | (~m & (MASK)no));
}

INLINE VEC NAME(load)(const REAL *p, long n) {
  VEC v = {0};
  if (n >= LANES) return *(const VEC *)p;
  memcpy(&v, p, (size_t)n * sizeof(REAL));
  return v;
}

INLINE void NAME(store)(REAL *p, VEC v, long n) {
  if (n >= LANES) *(VEC *)p = v;
  else memcpy(p, &v, (size_t)n * sizeof(REAL));
}

#define LOAD(p) NAME(load)(p, n)
#define STORE(p, v) NAME(store)(p, v, n)

/* Add to out, for `rows` rows and BLOCK columns, the sum over k of a[row][k] panel[k]. Where the rows
   are packed, `a` is none, and a[row][k] is packed[k][row]. */
INLINE void NAME(tile)(int rows, long K, const REAL *const *a, const REAL *packed,
                       const REAL *panel, VEC out[][2]) {
  VEC sum[TALL][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sum[r][0] = out[r][0], sum[r][1] = out[r][1];
  for (long k = 0; k < K; ++k) {
    VEC left = ((const VEC *)panel)[2 * k], right = ((const VEC *)panel)[2 * k + 1];
    IN_REGISTERS(left, right);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const REAL factor = a ? a[r][k] : packed[k * rows + r];
      sum[r][0] += factor * left;
      sum[r][1] += factor * right;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) out[r][0] = sum[r][0], out[r][1] = sum[r][1];
}

/* The tile, compiled for each height. */
#define TILE(rows)                                                                               \
  OUTLINE void NAME(tile_##rows)(long K, const REAL *const *a, const REAL *panel, VEC out[][2]) { \
    NAME(tile)(rows, K, a, 0, panel, out);                                                       \
  }                                                                                              \
  OUTLINE void NAME(packed_tile_##rows)(long K, const REAL *packed, const REAL *panel,           \
                                        VEC out[][2]) {                                          \
    NAME(tile)(rows, K, 0, packed, panel, out);                                                  \
  }
EACH_HEIGHT(TILE)
#undef TILE

/* Add to out the product of up to CHUNK rows with a panel of up to NEAR rows. */
INLINE void NAME(add_product)(long depth, long rows, const REAL *const *a, const REAL *panel,
                              VEC out[CHUNK][2]) {
  for (long row = 0, tall; row < rows; row += tall) {
    tall = height(rows - row);
    switch (tall) {
#define TILE(rows) \
  case rows: NAME(tile_##rows)(depth, a + row, panel, out + row); break;
      EACH_HEIGHT(TILE)
#undef TILE
    }
  }
}

/* The same of rows that are packed, tile by tile. */
INLINE void NAME(add_packed_product)(long depth, long rows, const REAL *packed, const REAL *panel,
                                     VEC out[CHUNK][2]) {
  for (long row = 0, tall; row < rows; row += tall) {
    tall = height(rows - row);
    switch (tall) {
#define TILE(rows) \
  case rows: NAME(packed_tile_##rows)(depth, packed + row * depth, panel, out + row); break;
      EACH_HEIGHT(TILE)
#undef TILE
    }
  }
}

/* The product for up to CHUNK rows, in pieces of K that stay in the nearest cache. */
INLINE void NAME(product)(long K, long rows, const REAL *const *a, const REAL *panel,
                          VEC out[CHUNK][2]) {
  const REAL *from[CHUNK];
  memset(out, 0, (size_t)rows * sizeof(VEC[2]));
  for (long k = 0; k < K; k += NEAR) {
    for (long r = 0; r < rows; ++r) from[r] = a[r] + k;
    NAME(add_product)(least(NEAR, K - k), rows, from, panel + k * BLOCK, out);
  }
}

/* Copy the columns of a block of U' (K, ·) so that the product reads them in order. */
INLINE void NAME(pack)(REAL *panel, const REAL *u, long K, long stride_k, long stride_j, long n) {
  if (n < BLOCK) memset(panel, 0, (size_t)(K * BLOCK) * sizeof(REAL));
  if (stride_j == 1)
    for (long k = 0; k < K; ++k) memcpy(panel + k * BLOCK, u + k * stride_k, (size_t)n * sizeof(REAL));
  else
    for (long first = 0; first < K; first += 16) /* rows that stay in the nearest cache meanwhile */
      for (long j = 0; j < n; ++j)
        for (long k = first; k < least(first + 16, K); ++k)
          panel[k * BLOCK + j] = u[k * stride_k + j * stride_j];
}
