/* Vectors, and the product of rows with a block of columns, in tiles that fit into registers.

   As cells.h, this file is compiled for each REAL. */

#include <stddef.h>
#include <string.h>

#ifndef TILES
#define TILES

#define CHUNK 96 /* rows at a time */
#ifndef NEAR /* tests have less, so that small products are in several pieces, too */
#define NEAR 320 /* of K: a panel of so many rows fits into the nearest cache beside its tile */
#endif
#ifndef INLINE /* tests do without it, which takes a tenth of the time to compile */
#define INLINE static inline __attribute__((always_inline))
#endif
#define OUTLINE static __attribute__((noinline))

/* A tile has at most TALL rows; up to 2 * LOW rows that are too many for one are LOW and the rest. */
#define UP_TO_6(X) X(1) X(2) X(3) X(4) X(5) X(6)
#if defined(__AVX512F__)
#define BYTES 64
#define TALL 12
#define LOW 8
#define EACH_HEIGHT(X) UP_TO_6(X) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#if defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define TALL 6
#define LOW 4
#define EACH_HEIGHT(X) UP_TO_6(X)
#endif

#define ONE(rows) +1
_Static_assert(0 EACH_HEIGHT(ONE) == TALL, "there is a tile of each height");
_Static_assert(0 < LOW && LOW <= TALL && TALL <= CHUNK, "a tile has at most the rows of a chunk");
_Static_assert(sizeof(long) == 8, "sizes and indices are long, and ctypes passes 64 bits");

INLINE long least(long a, long b) { return a < b ? a : b; }

/* The rows of the next tile: never more than are left. 20 rows are 12 + 8, or 6 + 6 + 4 + 4. */
INLINE long height(long left) { return left <= TALL ? left : left <= 2 * LOW ? LOW : TALL; }

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

/* Add to out, for `rows` rows and BLOCK columns, the sum over k of a[row][k] panel[k]. */
INLINE void NAME(tile)(int rows, long K, const REAL *const *a, const REAL *panel, VEC out[][2]) {
  VEC sum[TALL][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sum[r][0] = out[r][0], sum[r][1] = out[r][1];
  for (long k = 0; k < K; ++k) {
    VEC left = ((const VEC *)panel)[2 * k], right = ((const VEC *)panel)[2 * k + 1];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      sum[r][0] += a[r][k] * left;
      sum[r][1] += a[r][k] * right;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) out[r][0] = sum[r][0], out[r][1] = sum[r][1];
}

/* The tile, compiled for each height. */
#define TILE(rows)                                                                               \
  OUTLINE void NAME(tile_##rows)(long K, const REAL *const *a, const REAL *panel, VEC out[][2]) { \
    NAME(tile)(rows, K, a, panel, out);                                                          \
  }
EACH_HEIGHT(TILE)
#undef TILE

/* The product for up to CHUNK rows, in pieces of K that stay in the nearest cache. */
INLINE void NAME(product)(long K, long rows, const REAL *const *a, const REAL *panel,
                          VEC out[CHUNK][2]) {
  memset(out, 0, (size_t)rows * sizeof(VEC[2]));
  for (long k = 0; k < K; k += NEAR) {
    const long depth = least(NEAR, K - k);
    for (long row = 0, tall; row < rows; row += tall) {
      const REAL *from[TALL];
      tall = height(rows - row);
      for (long r = 0; r < tall; ++r) from[r] = a[row + r] + k;
      switch (tall) {
#define TILE(rows) \
  case rows: NAME(tile_##rows)(depth, from, panel + k * BLOCK, out + row); break;
        EACH_HEIGHT(TILE)
#undef TILE
      }
    }
  }
}
