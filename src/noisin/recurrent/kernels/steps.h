/* What a cell makes of its gates, and back, for LANES units of one row.

   As cells.h, which includes it, this file is compiled for each REAL.

   The factors are none or (S, ·) each. keep_h and keep_c are how much is kept of what was before,
   h' or c' (zoneout), and update is on what a memory adds:

     lstm       c~ = f c' + m i g    c = k_c c' + (1 - k_c) c~    h = k_h z' + (1 - k_h) o tanh(c~)
     gru        h = k_h h' + (1 - k_h) ((1 - u) m n + u h'), with h' the carry, if it is not z
     elman      h = k_h z' + (1 - k_h) s
*/

struct NAME(factors) {
  const REAL *keep_h, *keep_c, *update;
};

/* The same, of the units from `here` on. What is projected is kept later, and has other units. */
INLINE struct NAME(factors) NAME(of_units)(struct NAME(factors) k, int projected, long here) {
  return (struct NAME(factors)){k.keep_h && !projected ? k.keep_h + here : 0,
                                k.keep_c ? k.keep_c + here : 0, k.update ? k.update + here : 0};
}

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

/* What comes next where some of the old value is kept: exactly one of both if k is 0 or 1. */
INLINE VEC NAME(kept)(long n, const REAL *keep, const REAL *old, VEC next) {
  if (!keep) return next;
  VEC k = LOAD(keep);
  return k * LOAD(old) + (1 - k) * next;
}

/* h: what a cell makes of its gates. `a` is the recurrent product. */
INLINE VEC NAME(step)(long cell, long H, long n, REAL *gate, const REAL *bias, const VEC *a,
                      const REAL *z_before, REAL *carry, REAL *carries,
                      struct NAME(factors) k) {
#define BIAS_OF(slot) (bias ? LOAD(bias + (slot) * H) : (VEC){0})
#define GATE(slot) (LOAD(gate + (slot) * H) + BIAS_OF(slot))
  VEC h;
  if (cell == LSTM) {
    VEC i = NAME(sigmoid)(GATE(0) + a[0]), f = NAME(sigmoid)(GATE(1) + a[1]);
    VEC g = NAME(tanh)(GATE(2) + a[2]), o = NAME(sigmoid)(GATE(3) + a[3]);
    STORE(gate, i), STORE(gate + H, f), STORE(gate + 2 * H, g), STORE(gate + 3 * H, o);
    if (k.update) g *= LOAD(k.update);
    VEC c = f * LOAD(carry) + i * g, next = NAME(kept)(n, k.keep_c, carry, c);
    STORE(carry, next);
    if (carries) STORE(carries, next);
    h = NAME(kept)(n, k.keep_h, z_before, o * NAME(tanh)(c));
  } else if (cell >= GRU_READ) {
    VEC r = NAME(sigmoid)(GATE(1) + a[0]), u = NAME(sigmoid)(GATE(2) + a[1]);
    VEC m = BIAS_OF(3) + a[2], n_ = NAME(tanh)(GATE(0) + r * m); /* nothing is in slot m yet */
    STORE(gate, n_), STORE(gate + H, r), STORE(gate + 2 * H, u), STORE(gate + 3 * H, m);
    const REAL *before = cell == GRU_READ ? carry : z_before;
    if (k.update) n_ *= LOAD(k.update);
    h = NAME(kept)(n, k.keep_h, before, (LOAD(before) - n_) * u + n_);
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
    h = NAME(kept)(n, k.keep_h, z_before, h);
  }
  return h;
}

/* The gradient of one step: of its gates, and of the carry before it. What flows along a z that is
   kept is left to the caller. */
INLINE void NAME(step_back)(long cell, long H, long n, VEC d_h, const REAL *gate, const REAL *c,
                            const REAL *before, REAL *d_carry, REAL *d_gate,
                            struct NAME(factors) k) {
  VEC along = {0};
  if (cell == GRU_READ) d_h += LOAD(d_carry);
  if (k.keep_h) along = LOAD(k.keep_h) * d_h, d_h -= along;
  if (cell == LSTM) {
    VEC i = LOAD(gate), f = LOAD(gate + H), g = LOAD(gate + 2 * H), o = LOAD(gate + 3 * H);
    VEC m_i = i, m_g = g, d_c = LOAD(d_carry);
    if (k.update) m_i *= LOAD(k.update), m_g *= LOAD(k.update);
    VEC s = LOAD(c);
    if (k.keep_c) along = LOAD(k.keep_c) * d_c, d_c -= along, s = f * LOAD(before) + i * m_g;
    s = NAME(tanh)(s);
    d_c += d_h * o * (1 - s * s);
    STORE(d_gate, d_c * m_g * i * (1 - i));
    STORE(d_gate + H, d_c * LOAD(before) * f * (1 - f));
    STORE(d_gate + 2 * H, d_c * m_i * (1 - g * g));
    STORE(d_gate + 3 * H, d_h * s * o * (1 - o));
    VEC d_before = d_c * f;
    if (k.keep_c) d_before += along;
    STORE(d_carry, d_before);
  } else if (cell >= GRU_READ) {
    VEC n_ = LOAD(gate), r = LOAD(gate + H), u = LOAD(gate + 2 * H), m = LOAD(gate + 3 * H);
    VEC m_n = n_, d_n = d_h * (1 - u) * (1 - n_ * n_), d_before = d_h * u;
    if (k.update) m_n *= LOAD(k.update), d_n *= LOAD(k.update);
    if (k.keep_h && cell == GRU_READ) d_before += along;
    STORE(d_gate, d_n);
    STORE(d_gate + H, d_n * m * r * (1 - r));
    STORE(d_gate + 2 * H, d_h * (LOAD(before) - m_n) * u * (1 - u));
    STORE(d_gate + 3 * H, d_n * r);
    STORE(d_carry, d_before);
  } else {
    VEC h = LOAD(gate), slope = NAME(pick)(h > 0, NAME(all)(1), (VEC){0});
    if (cell == ELMAN_TANH) slope = 1 - h * h;
    if (cell == ELMAN_SIGMOID) slope = h * (1 - h);
    STORE(d_gate, d_h * slope);
  }
}
