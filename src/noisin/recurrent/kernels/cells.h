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

   A mask, if there is one, is a factor on what the gates read of the state before: z_{t-1} m_t.
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
  long cell, additive, reverse, T, N, H, P, threads, masked, multiplied;
  const long *offset; /* T + 1 */
};

INLINE long slots(long cell) { return cell <= ELMAN_SIGMOID ? 1 : 4; }
INLINE long recurrent(long cell) { return cell >= GRU_READ ? 3 : slots(cell); } /* the last ones */

/* Units of z: those of a projection, if there is one. */
INLINE long outputs(const struct layer *l) { return l->P ? l->P : l->H; }

/* The step that is i-th in the order of the recurrence. */
INLINE long ordered(const struct layer *l, long i) { return l->reverse ? l->T - 1 - i : i; }

#endif

/* exp(x) = 2^k exp(r) with |r| <= log(2)/2 and exp(r) by its Taylor polynomial, whose error is below
   one unit in the last place. Arguments are cut to where the result is normal; NaN stays NaN. */
INLINE VEC NAME(exp)(VEC x) {
  static const REAL inverse_factorial[] = {1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720,
    1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600};
  const REAL most = (REAL)0.69 * BIAS, shift = SHIFT;
  x = NAME(pick)(x > most, NAME(all)(most), x);
  x = NAME(pick)(x < -most, NAME(all)(-most), x);
  VEC k = x * (REAL)1.4426950408889634 + shift; /* rounds, and its low bits are the integer k */
  MASK power = ((MASK)k << MANTISSA) + ((INTEGER)BIAS << MANTISSA);
  k -= shift;
  VEC r = x - k * LN2_HIGH - k * LN2_LOW, sum = NAME(all)(inverse_factorial[DEGREE]);
#pragma GCC unroll 16
  for (int i = DEGREE - 1; i >= 0; --i) sum = sum * r + inverse_factorial[i];
  return sum * (VEC)power;
}

INLINE VEC NAME(sigmoid)(VEC x) { return 1 / (1 + NAME(exp)(-x)); }

/* (e - 1)/(e + 1) with e = exp(2x); near 0, where e - 1 loses digits, the continued fraction
   x/(1 + x^2/(3 + x^2/(5 + ...))). */
INLINE VEC NAME(tanh)(VEC x) {
  VEC e = NAME(exp)(2 * x), s = x * x;
#if MANTISSA < 52
  VEC up = 135135 + s * (17325 + s * (378 + s)), down = 135135 + s * (62370 + s * (3150 + s * 28));
#else
  VEC up = 34459425 + s * (4729725 + s * (135135 + s * (990 + s)));
  VEC down = 34459425 + s * (16216200 + s * (945945 + s * (13860 + s * 45)));
#endif
  MASK near = s < (REAL)0.36;
  return NAME(pick)(near, x * up, e - 1) / NAME(pick)(near, down, e + 1);
}

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

/* Multiply rows by those of a mask, into `read`, to which `a` then points. */
INLINE void NAME(mask_rows)(long rows, long H, const REAL **a, const REAL *mask, REAL *read) {
  for (long r = 0; r < rows; ++r, mask += H, read += H) {
    for (long j = 0; j < H; ++j) read[j] = a[r][j] * mask[j];
    a[r] = read;
  }
}

/* z from h, for LANES units of one row, and the gradient of h from that of z. */
INLINE void NAME(emit)(long additive, long n, VEC h, const REAL *eps, REAL *z) {
  VEC e = LOAD(eps);
  STORE(z, additive ? h + e : h * (1 + e));
}
INLINE VEC NAME(emit_back)(long additive, long n, const REAL *eps, const REAL *d_z,
                           const REAL *d_state) {
  VEC d_h = LOAD(d_z) + LOAD(d_state);
  if (!additive) d_h += d_h * LOAD(eps);
  return d_h;
}

/* h: what a cell makes of its gates, for LANES units of one row. `a` is the recurrent product. */
INLINE VEC NAME(step)(long cell, long H, long n, REAL *gate, const REAL *bias, const VEC *a,
                      const REAL *z_before, REAL *carry, REAL *carries) {
#define BIAS_OF(slot) (bias ? LOAD(bias + (slot) * H) : (VEC){0})
#define GATE(slot) (LOAD(gate + (slot) * H) + BIAS_OF(slot))
  VEC h;
  if (cell == LSTM) {
    VEC i = NAME(sigmoid)(GATE(0) + a[0]), f = NAME(sigmoid)(GATE(1) + a[1]);
    VEC g = NAME(tanh)(GATE(2) + a[2]), o = NAME(sigmoid)(GATE(3) + a[3]);
    VEC c = f * LOAD(carry) + i * g;
    STORE(gate, i), STORE(gate + H, f), STORE(gate + 2 * H, g), STORE(gate + 3 * H, o);
    STORE(carry, c);
    if (carries) STORE(carries, c);
    h = o * NAME(tanh)(c);
  } else if (cell >= GRU_READ) {
    VEC r = NAME(sigmoid)(GATE(1) + a[0]), u = NAME(sigmoid)(GATE(2) + a[1]);
    VEC m = BIAS_OF(3) + a[2], n_ = NAME(tanh)(GATE(0) + r * m); /* nothing is in slot m yet */
    STORE(gate, n_), STORE(gate + H, r), STORE(gate + 2 * H, u), STORE(gate + 3 * H, m);
    h = (LOAD(cell == GRU_READ ? carry : z_before) - n_) * u + n_;
    if (cell == GRU_READ) {
      STORE(carry, h);
      if (carries) STORE(carries, h);
    }
  } else {
    VEC s = GATE(0) + a[0];
    h = NAME(pick)(s < 0, (VEC){0}, s);
    if (cell == ELMAN_TANH) h = NAME(tanh)(s);
    if (cell == ELMAN_SIGMOID) h = NAME(sigmoid)(s);
    STORE(gate, h);
  }
  return h;
}

/* The gradient of one step: of its gates, and of the carry and the state before it. */
INLINE void NAME(step_back)(long cell, long H, long n, VEC d_h, const REAL *gate, const REAL *c,
                            const REAL *before, REAL *d_carry, REAL *d_gate) {
  if (cell == LSTM) {
    VEC i = LOAD(gate), f = LOAD(gate + H), g = LOAD(gate + 2 * H), o = LOAD(gate + 3 * H);
    VEC s = NAME(tanh)(LOAD(c)), d_c = LOAD(d_carry) + d_h * o * (1 - s * s);
    STORE(d_gate, d_c * g * i * (1 - i));
    STORE(d_gate + H, d_c * LOAD(before) * f * (1 - f));
    STORE(d_gate + 2 * H, d_c * i * (1 - g * g));
    STORE(d_gate + 3 * H, d_h * s * o * (1 - o));
    STORE(d_carry, d_c * f);
  } else if (cell >= GRU_READ) {
    VEC n_ = LOAD(gate), r = LOAD(gate + H), u = LOAD(gate + 2 * H), m = LOAD(gate + 3 * H);
    if (cell == GRU_READ) d_h += LOAD(d_carry);
    VEC d_n = d_h * (1 - u) * (1 - n_ * n_);
    STORE(d_gate, d_n);
    STORE(d_gate + H, d_n * m * r * (1 - r));
    STORE(d_gate + 2 * H, d_h * (LOAD(before) - n_) * u * (1 - u));
    STORE(d_gate + 3 * H, d_n * r);
    STORE(d_carry, d_h * u);
  } else {
    VEC h = LOAD(gate), slope = NAME(pick)(h > 0, NAME(all)(1), (VEC){0});
    if (cell == ELMAN_TANH) slope = 1 - h * h;
    if (cell == ELMAN_SIGMOID) slope = h * (1 - h);
    STORE(d_gate, d_h * slope);
  }
}

#include "projection.h"

INLINE void NAME(forward_units)(long cell, int projected, const struct layer *l, long first,
                                long last, VEC (*sum)[CHUNK][2], REAL *gates, const REAL *bias,
                                const REAL *u, REAL *panels, REAL *read,
                                struct NAME(projection) p, const REAL *z0, REAL *carry,
                                const REAL *eps, const REAL *mask, REAL *z, REAL *carries) {
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
      const REAL *a[CHUNK];
      for (long r = 0; r < chunk; ++r) a[r] = NAME(before)(l, i, row + r, Z, z, z0);
      if (mask) NAME(mask_rows)(chunk, Z, a, mask + at * Z, read);
      for (long b = first; b < last; ++b) {
        const long j = b * BLOCK, end = least(j + BLOCK, H) - 1;
        for (long s = 0; s < R; ++s) {
          /* Fetch what the step will read and write while the product runs. */
          for (long r = 0; r < chunk; ++r)
            __builtin_prefetch(gates + (at + r) * G * H + s * H + end, 1);
          NAME(product)(Z, chunk, a, panels + (b * R + s) * Z * BLOCK, sum[s]);
        }
        for (long r = 0; r < chunk; ++r)
          for (long v = 0; v < 2; ++v) {
            const long k = j + v * LANES, n = H - k, here = (at + r) * H + k;
            const REAL *carried =
                cell == GRU_STATE ? NAME(before)(l, i, row + r, H, z, z0) + k : 0;
            VEC product[4];
            for (long s = 0; s < R; ++s) product[s] = sum[s][r][v];
#define STEP(n)                                                                             \
  {                                                                                         \
    VEC h = NAME(step)(cell, H, n, gates + (at + r) * G * H + k, bias ? bias + k : 0,       \
                       product, carried, carry ? carry + (row + r) * H + k : 0,             \
                       carries ? carries + here : 0);                                       \
    if (projected) STORE(p.h + (row + r) * H + k, h);                                       \
    else NAME(emit)(l->additive, n, h, eps + here, z + here);                               \
  }
            if (n >= LANES) STEP(LANES) /* a constant, for speed */
            else if (n > 0) STEP(n)
          }
      }
    }
    BARRIER
    if (projected) {
      NAME(project)(l, start, rows, &p, *sum, eps, z);
      BARRIER
    }
  }
}

/* The only step there is, whose gates contain the recurrent product. */
INLINE void NAME(forward_step)(long cell, int projected, const struct layer *l, long first,
                               long last, REAL *gates, const REAL *bias, const REAL *z0,
                               REAL *carry, const REAL *eps, REAL *z, REAL *carries) {
  const long H = l->H, G = slots(cell), from = first * BLOCK, to = least(last * BLOCK, H);
  if (projected) return; /* never */
  for (long row = 0; row < l->N; ++row)
    for (long j = from; j < to; j += LANES) {
      const long n = to - j, here = row * H + j;
      REAL *gate = gates + row * G * H + j;
      VEC product[4] = {{0}};
      if (cell >= GRU_READ) product[2] = LOAD(gate + 3 * H); /* slot m has nothing else */
      VEC h = NAME(step)(cell, H, n, gate, bias ? bias + j : 0, product, z0 + here,
                         carry ? carry + here : 0, carries ? carries + here : 0);
      NAME(emit)(l->additive, n, h, eps + here, z + here);
    }
}

INLINE void NAME(backward_units)(long cell, int projected, const struct layer *l, long first,
                                 long last, VEC (*sum)[CHUNK][2], const REAL *gates,
                                 const REAL *u, REAL *panels, struct NAME(projection) p,
                                 const REAL *z0, const REAL *carry0, const REAL *eps,
                                 const REAL *mask, const REAL *z, const REAL *carries,
                                 const REAL *d_z, REAL *d_state, REAL *d_carry, REAL *d_gates) {
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
      NAME(project_back)(l, i, first, last, &p, *sum, gates, carry0, carries, d_carry, d_gates);
    }
    for (long row = 0; row < rows && !projected; ++row) {
      const int carried = cell == LSTM || cell == GRU_READ;
      const REAL *before =
          NAME(before)(l, i, row, H, carried ? carries : z, carried ? carry0 : z0);
      for (long j = from; j < to; j += LANES) {
        const long here = (start + row) * H + j, gate = (start + row) * G * H + j;
#define STEP_BACK(n)                                                                       \
  NAME(step_back)(cell, H, n,                                                               \
                  NAME(emit_back)(l->additive, n, eps + here, d_z + here,                   \
                                  d_state + row * H + j),                                   \
                  gates + gate, carries ? carries + here : 0, before + j,                   \
                  d_carry + row * H + j, d_gates + gate)
        if (to - j >= LANES) STEP_BACK(LANES); /* a constant, for speed */
        else STEP_BACK(to - j);
      }
    }
    BARRIER
    for (long row = 0; row < rows && !l->multiplied; row += CHUNK) {
      const long chunk = least(CHUNK, rows - row);
      const REAL *a[CHUNK];
      for (long r = 0; r < chunk; ++r) a[r] = d_gates + (start + row + r) * G * H + (G - R) * H;
      for (long b = z_first; b < z_last; ++b) {
        NAME(product)(K, chunk, a, panels + b * K * BLOCK, *sum);
        for (long r = 0; r < chunk; ++r)
          for (long v = 0; v < 2; ++v) {
            const long j = b * BLOCK + v * LANES, n = Z - j, own = (row + r) * Z + j;
            if (n <= 0) continue;
            VEC d = (*sum)[r][v];
            if (mask) d *= LOAD(mask + (start + row + r) * Z + j);
            if (cell == GRU_STATE) d += LOAD(d_carry + own);
            STORE(d_state + own, d);
          }
      }
    }
  }
}

/* How many REALs of room a call needs: the panels of all blocks, h of one step where it is projected,
   and the sums and masked rows of each thread, which may be more than its stack has room for. Forward,
   a thread has the sums of all slots at once. */
INLINE long NAME(shared)(const struct layer *l, long back) {
  return NAME(panels)(l, back) + NAME(projection_panels)(l, back) + NAME(projection_h)(l, back);
}
INLINE long NAME(sums)(const struct layer *l, long back) {
  return (back ? 1 : recurrent(l->cell)) * CHUNK * BLOCK;
}
INLINE long NAME(reads)(const struct layer *l, long back) {
  return l->masked && !back ? least(CHUNK, l->N) * outputs(l) : 0;
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

void NAME(forward)(const struct layer *l, REAL *room, REAL *gates, const REAL *bias,
                   const REAL *u, const REAL *w_hr, const REAL *z0, REAL *carry,
                   const REAL *eps, const REAL *mask, REAL *z, REAL *carries) {
#pragma omp parallel num_threads((int)l->threads)
  {
    UNITS(0);
    REAL *read = own + NAME(sums)(l, 0);
    const struct NAME(projection) p = NAME(part)(l, w_hr, room, 0, 0);
    if (l->multiplied)
      EACH_CELL(NAME(forward_step), l, first, last, gates, bias, z0, carry, eps, z, carries)
    else
      EACH_CELL(NAME(forward_units), l, first, last, sum, gates, bias, u, room, read, p, z0,
                carry, eps, mask, z, carries)
  }
}

void NAME(backward)(const struct layer *l, REAL *room, const REAL *gates, const REAL *u,
                    const REAL *w_hr, const REAL *z0, const REAL *carry0, const REAL *eps,
                    const REAL *mask, const REAL *z, const REAL *carries, const REAL *d_z,
                    REAL *d_state, REAL *d_carry, REAL *d_gates, REAL *d_projected) {
#pragma omp parallel num_threads((int)l->threads)
  {
    UNITS(1);
    const struct NAME(projection) p = NAME(part)(l, w_hr, room, d_projected, 1);
    EACH_CELL(NAME(backward_units), l, first, last, sum, gates, u, room, p, z0, carry0, eps, mask,
              z, carries, d_z, d_state, d_carry, d_gates)
  }
}

/* What the shapes at the edges of tiles follow from. */
const long NAME(tiling)[] = {CHUNK, TALL, LOW, NEAR, BLOCK};
