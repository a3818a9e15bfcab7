/* The recurrence of a noisy layer: all time steps of one layer in one direction.

   This file is compiled twice, as float and as double: REAL is the type, NAME(x) its suffix.

   Each thread owns a range of hidden units, in blocks of BLOCK, and computes for them both the
   recurrent product and what the cell makes of it. All threads meet once per step, when the others
   need their part of z_t (forward) or of the gradient of the gates (backward). Where z_t is a
   projection of h_t to P units (projection.h), they also own a range of those, and meet once more.

   The rows of step t are offset[t] ... offset[t + 1] - 1 of every (S, ...) array, as in a
   PackedSequence: a step may have fewer rows than the one before, never more. Slots of the gates:

     elman      h                  both products add to it
     lstm       i f g o            both products add to all
     gru        n r u m            the input adds to n r u, the state to r u m: n = tanh(n + r m)

   Where a layer is `multiplied`, it has one step, and its recurrent product is not computed here, as
   one step is not worth the panels: forward it is in the gates already, and backward d_state is left
   to the caller. There is no u then, nor a projection.

   A mask, if there is one, is a factor on what the gates read of the state before: z_{t-1} m_t. Or each
   recurrent gate has its own, and they follow one another in the rows of (S, R Z). Where masks are
   held, they have N rows, the same at all steps. Other factors, on what a step keeps and adds
   (steps.h), are for the functions whose name says so. The others pass a constant in their place, so
   that nothing of it is in their loops.
*/

#include "tiles.h"

#ifndef ONCE
#define ONCE

#if defined(_OPENMP)
#include <omp.h>
#define BARRIER _Pragma("omp barrier")
#define THREAD omp_get_thread_num()
#define THREADS omp_get_num_threads()
#else
#define BARRIER
#define THREAD 0
#define THREADS 1
#endif

enum cell { ELMAN_TANH, ELMAN_RELU, ELMAN_SIGMOID, LSTM, GRU_READ, GRU_STATE };

struct layer {
  long cell, additive, reverse, T, N, H, P, threads;
  long masked;        /* the number of masks: none, one, or one for each recurrent gate */
  long held, multiplied;
  long D;             /* from one row of d_gates to the next, which may be more than it has */
  const long *offset; /* T + 1 */
};

INLINE long slots(long cell) { return cell <= ELMAN_SIGMOID ? 1 : 4; }
INLINE long recurrent(long cell) { return cell >= GRU_READ ? 3 : slots(cell); } /* the last ones */

/* Units of z: those of a projection, if there is one. */
INLINE long outputs(const struct layer *l) { return l->P ? l->P : l->H; }

/* The step that is i-th in the order of the recurrence. */
INLINE long ordered(const struct layer *l, long i) { return l->reverse ? l->T - 1 - i : i; }

#endif

#include "steps.h"

/* Rows of the step before: those that it had, and the initial ones of sequences that begin here
   (which they do in mid-sequence where time runs backward over a PackedSequence). */
INLINE const REAL *NAME(before)(const struct layer *l, long i, long row, long size,
                                const REAL *steps, const REAL *initial) {
  if (i > 0) {
    long t = ordered(l, i - 1), start = l->offset[t];
    if (row < l->offset[t + 1] - start) return steps + (start + row) * size;
  }
  return initial + row * size;
}

/* Multiply the rows a[0] by those of each mask, into `read`, to which a[0], a[1], ... then point. */
INLINE void NAME(mask_rows)(long rows, long Z, long masks, const REAL *a[4][CHUNK],
                            const REAL *mask, REAL *read) {
  for (long m = masks - 1; m >= 0; --m) /* a[0], which the others are made of, at last */
    for (long r = 0; r < rows; ++r, read += Z) {
      const REAL *factor = mask + (r * masks + m) * Z;
      for (long j = 0; j < Z; ++j) read[j] = a[0][r][j] * factor[j];
      a[m][r] = read;
    }
}

#include "projection.h"

INLINE void NAME(forward_units)(long cell, int projected, const struct layer *l, long first,
                                long last, VEC (*sum)[CHUNK][2], REAL *gates, const REAL *bias,
                                const REAL *u, REAL *panels, REAL *read,
                                struct NAME(projection) p, const REAL *z0, REAL *carry,
                                const REAL *eps, const REAL *mask, REAL *z, REAL *carries,
                                struct NAME(factors) k) {
  const long H = l->H, Z = projected ? l->P : H, G = slots(cell), R = recurrent(cell);
  for (long b = first; b < last; ++b)
    for (long s = 0; s < R; ++s)
      NAME(pack)(panels + (b * R + s) * Z * BLOCK, u + (s * H + b * BLOCK) * Z, Z, 1, Z,
                 least(BLOCK, H - b * BLOCK));
  if (projected) NAME(pack_projection)(l, &p);
  for (long i = 0; i < l->T; ++i) {
    const long t = ordered(l, i), start = l->offset[t], rows = l->offset[t + 1] - start;
    for (long row = 0; row < rows; row += CHUNK) {
      const long chunk = least(CHUNK, rows - row), at = start + row;
      const REAL *a[4][CHUNK];
      for (long r = 0; r < chunk; ++r) a[0][r] = NAME(before)(l, i, row + r, Z, z, z0);
      if (mask)
        NAME(mask_rows)(chunk, Z, l->masked, a, mask + (l->held ? row : at) * l->masked * Z, read);
      for (long b = first; b < last; ++b) {
        const long j = b * BLOCK, end = least(j + BLOCK, H) - 1;
        for (long s = 0; s < R; ++s) {
          /* Fetch what the step will read and write while the product runs. */
          for (long r = 0; r < chunk; ++r)
            __builtin_prefetch(gates + (at + r) * G * H + s * H + end, 1);
          NAME(product)(Z, chunk, a[l->masked > 1 ? s : 0], panels + (b * R + s) * Z * BLOCK,
                        sum[s]);
        }
        for (long r = 0; r < chunk; ++r)
          for (long v = 0; v < 2; ++v) {
            const long q = j + v * LANES, n = H - q, here = (at + r) * H + q;
            const struct NAME(factors) own = NAME(of_units)(k, projected, here);
            const REAL *carried = cell == GRU_STATE || own.keep_h
                                      ? NAME(before)(l, i, row + r, H, z, z0) + q
                                      : 0;
            VEC product[4];
            for (long s = 0; s < R; ++s) product[s] = sum[s][r][v];
#define STEP(n)                                                                             \
  {                                                                                         \
    VEC h = NAME(step)(cell, H, n, gates + (at + r) * G * H + q, bias ? bias + q : 0,       \
                       product, carried, carry ? carry + (row + r) * H + q : 0,             \
                       carries ? carries + here : 0, own);                                  \
    if (projected) STORE(p.h + (row + r) * H + q, h);                                       \
    else NAME(emit)(l->additive, n, h, eps + here, z + here);                               \
  }
            if (n >= LANES) STEP(LANES) /* a constant, for speed */
            else if (n > 0) STEP(n)
          }
      }
    }
    BARRIER
    if (projected) {
      NAME(project)(l, i, &p, *sum, z0, eps, z);
      BARRIER
    }
  }
}

/* The only step there is, whose gates contain the recurrent product. */
INLINE void NAME(forward_step)(long cell, int projected, const struct layer *l, long first,
                               long last, REAL *gates, const REAL *bias, const REAL *z0,
                               REAL *carry, const REAL *eps, REAL *z, REAL *carries,
                               struct NAME(factors) k) {
  const long H = l->H, G = slots(cell), from = first * BLOCK, to = least(last * BLOCK, H);
  if (projected) return; /* never */
  for (long row = 0; row < l->N; ++row)
    for (long j = from; j < to; j += LANES) {
      const long n = to - j, here = row * H + j;
      REAL *gate = gates + row * G * H + j;
      VEC product[4] = {{0}};
      if (cell >= GRU_READ) product[2] = LOAD(gate + 3 * H); /* slot m has nothing else */
      VEC h = NAME(step)(cell, H, n, gate, bias ? bias + j : 0, product, z0 + here,
                         carry ? carry + here : 0, carries ? carries + here : 0,
                         NAME(of_units)(k, projected, here));
      NAME(emit)(l->additive, n, h, eps + here, z + here);
    }
}

INLINE void NAME(backward_units)(long cell, int projected, const struct layer *l, long first,
                                 long last, VEC (*sum)[CHUNK][2], const REAL *gates,
                                 const REAL *u, REAL *panels, struct NAME(projection) p,
                                 const REAL *z0, const REAL *carry0, const REAL *eps,
                                 const REAL *mask, const REAL *z, const REAL *carries,
                                 const REAL *d_z, REAL *d_state, REAL *d_carry, REAL *d_gates,
                                 struct NAME(factors) k) {
  const long H = l->H, Z = projected ? l->P : H, G = slots(cell), R = recurrent(cell), K = R * H;
  const long z_first = projected ? p.first : first, z_last = projected ? p.last : last;
  for (long b = z_first; b < z_last && !l->multiplied; ++b)
    NAME(pack)(panels + b * K * BLOCK, u + b * BLOCK, K, Z, 1, least(BLOCK, Z - b * BLOCK));
  if (projected) NAME(pack_projection_back)(l, first, last, &p);
  for (long i = l->T - 1; i >= 0; --i) {
    const long t = ordered(l, i), start = l->offset[t], rows = l->offset[t + 1] - start;
    const long from = first * BLOCK, to = least(last * BLOCK, H);
    if (projected) {
      NAME(emit_projected_back)(l, start, rows, &p, eps, d_z, d_state);
      BARRIER
      NAME(project_back)(l, i, first, last, &p, *sum, gates, carry0, carries, d_carry, d_gates, k);
    }
    for (long row = 0; row < rows && !projected; ++row) {
      const int carried = cell == LSTM || cell == GRU_READ;
      const REAL *before =
          NAME(before)(l, i, row, H, carried ? carries : z, carried ? carry0 : z0);
      for (long j = from; j < to; j += LANES) {
        const long at = start + row, here = at * H + j;
#define STEP_BACK(n)                                                                       \
  NAME(step_back)(cell, H, n,                                                               \
                  NAME(emit_back)(l->additive, n, eps + here, d_z + here,                   \
                                  d_state + row * H + j),                                   \
                  gates + at * G * H + j, carries ? carries + here : 0, before + j,         \
                  d_carry + row * H + j, d_gates + at * l->D + j,                           \
                  NAME(of_units)(k, projected, here))
        if (to - j >= LANES) STEP_BACK(LANES); /* a constant, for speed */
        else STEP_BACK(to - j);
      }
    }
    BARRIER
    for (long row = 0; row < rows && !l->multiplied; row += CHUNK) {
      const long chunk = least(CHUNK, rows - row);
      const long M = l->masked > 1 ? R : 1, depth = K / M; /* a product for each mask */
      const REAL *a[4][CHUNK];
      for (long m = 0; m < M; ++m)
        for (long r = 0; r < chunk; ++r)
          a[m][r] = d_gates + (start + row + r) * l->D + (G - R) * H + m * depth;
      for (long b = z_first; b < z_last; ++b) {
        for (long m = 0; m < M; ++m)
          NAME(product)(depth, chunk, a[m], panels + (b * K + m * depth) * BLOCK, sum[m]);
        for (long r = 0; r < chunk; ++r)
          for (long v = 0; v < 2; ++v) {
            const long j = b * BLOCK + v * LANES, n = Z - j, own = (row + r) * Z + j;
            if (n <= 0) continue;
            const long masked = row + r + (l->held ? 0 : start);
            const REAL *factor = mask ? mask + masked * M * Z + j : 0;
            VEC d = sum[0][r][v];
            if (mask) d *= LOAD(factor);
            for (long m = 1; m < M; ++m) d += sum[m][r][v] * LOAD(factor + m * Z);
            if (cell == GRU_STATE) d += LOAD(d_carry + own);
            if (k.keep_h && cell != GRU_READ) { /* from h, along the z that was kept */
              const long here = (start + row + r) * Z + j;
              d += LOAD(k.keep_h + here) *
                   NAME(emit_back)(l->additive, n, eps + here, d_z + here, d_state + own);
            }
            STORE(d_state + own, d);
          }
      }
    }
  }
}

/* How many REALs of room a call needs: the panels of all blocks, h of one step where it is projected,
   and the sums and masked rows of each thread, which may be more than its stack has room for. Forward,
   a thread has the sums of all slots at once, and backward, of all that have masks of their own. */
INLINE long NAME(shared)(const struct layer *l, long back) {
  return NAME(panels)(l, back) + NAME(projection_panels)(l, back) + NAME(projection_h)(l, back);
}
INLINE long NAME(sums)(const struct layer *l, long back) {
  return (back && l->masked < 2 ? 1 : recurrent(l->cell)) * CHUNK * BLOCK;
}
INLINE long NAME(reads)(const struct layer *l, long back) {
  return back ? 0 : l->masked * least(CHUNK, l->N) * outputs(l);
}
INLINE long NAME(own)(const struct layer *l, long back) {
  return NAME(sums)(l, back) + NAME(reads)(l, back);
}
long NAME(room)(const struct layer *l, long back) {
  return l->multiplied ? 0 : NAME(shared)(l, back) + l->threads * NAME(own)(l, back);
}

#define UNITS(back)                                                    \
  const long blocks = NAME(blocks)(l->H);                               \
  const long first = blocks * THREAD / THREADS;                         \
  const long last = blocks * (THREAD + 1) / THREADS;                    \
  REAL *own = room + NAME(shared)(l, back) + THREAD * NAME(own)(l, back); \
  VEC(*sum)[CHUNK][2] = (VEC(*)[CHUNK][2])own

#define EACH_CELL(run, ...)                                             \
  switch (l->cell) {                                                    \
    case ELMAN_TANH: run(ELMAN_TANH, 0, __VA_ARGS__); break;            \
    case ELMAN_RELU: run(ELMAN_RELU, 0, __VA_ARGS__); break;            \
    case ELMAN_SIGMOID: run(ELMAN_SIGMOID, 0, __VA_ARGS__); break;      \
    case LSTM:                                                          \
      if (l->P) run(LSTM, 1, __VA_ARGS__);                              \
      else run(LSTM, 0, __VA_ARGS__);                                   \
      break;                                                            \
    case GRU_READ: run(GRU_READ, 0, __VA_ARGS__); break;                \
    case GRU_STATE: run(GRU_STATE, 0, __VA_ARGS__); break;              \
  }

/* What the functions below take, and pass on with their factors. */
#define FORWARD                                                                             \
  const struct layer *l, REAL *room, REAL *gates, const REAL *bias, const REAL *u,          \
      const REAL *w_hr, const REAL *z0, REAL *carry, const REAL *eps, const REAL *mask,     \
      REAL *z, REAL *carries
#define BACKWARD                                                                            \
  const struct layer *l, REAL *room, const REAL *gates, const REAL *u, const REAL *w_hr,    \
      const REAL *z0, const REAL *carry0, const REAL *eps, const REAL *mask, const REAL *z, \
      const REAL *carries, const REAL *d_z, REAL *d_state, REAL *d_carry, REAL *d_gates,    \
      REAL *d_projected
#define NONE ((struct NAME(factors)){0, 0, 0})

#define ANY_CELL(run, ...) run(l->cell, 0, __VA_ARGS__);

/* With factors only the LSTM is compiled by itself: the others would take as long to compile. */
#define SOME_CELLS(run, ...)                                            \
  if (l->cell != LSTM) run(l->cell, 0, __VA_ARGS__);                    \
  else if (l->P) run(LSTM, 1, __VA_ARGS__);                             \
  else run(LSTM, 0, __VA_ARGS__);

#define FORWARD_PART(cells, single, k)                                                      \
  {                                                                                         \
    UNITS(0);                                                                               \
    REAL *read = own + NAME(sums)(l, 0);                                                    \
    const struct NAME(projection) p = NAME(part)(l, w_hr, room, 0, 0, (k).keep_h);          \
    if (l->multiplied) {                                                                    \
      single(NAME(forward_step), l, first, last, gates, bias, z0, carry, eps, z, carries, k) \
    } else {                                                                                \
      cells(NAME(forward_units), l, first, last, sum, gates, bias, u, room, read, p, z0,    \
            carry, eps, mask, z, carries, k)                                                \
    }                                                                                       \
  }

#define BACKWARD_PART(cells, k)                                                             \
  {                                                                                         \
    UNITS(1);                                                                               \
    const struct NAME(projection) p = NAME(part)(l, w_hr, room, d_projected, 1, (k).keep_h); \
    cells(NAME(backward_units), l, first, last, sum, gates, u, room, p, z0, carry0, eps,    \
          mask, z, carries, d_z, d_state, d_carry, d_gates, k)                              \
  }

void NAME(forward)(FORWARD) {
#pragma omp parallel num_threads((int)l->threads)
  FORWARD_PART(EACH_CELL, EACH_CELL, NONE)
}

void NAME(forward_factored)(const struct NAME(factors) *k, FORWARD) {
#pragma omp parallel num_threads((int)l->threads)
  FORWARD_PART(SOME_CELLS, ANY_CELL, *k)
}

void NAME(backward)(BACKWARD) {
#pragma omp parallel num_threads((int)l->threads)
  BACKWARD_PART(EACH_CELL, NONE)
}

void NAME(backward_factored)(const struct NAME(factors) *k, BACKWARD) {
#pragma omp parallel num_threads((int)l->threads)
  BACKWARD_PART(SOME_CELLS, *k)
}

/* What the shapes at the edges of tiles follow from. */
const long NAME(tiling)[] = {CHUNK, TALL, LOW, NEAR, BLOCK};
