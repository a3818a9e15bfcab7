/* The recurrence and its gradient as plain loops in double, one sequence and one unit at a time.

   This is the oracle of the compiled kernel, so nothing of it is shared. Arrays and slots of the
   gates are laid out as cells.h says; a sequence n is there at step t if n < rows of t. */

#include <math.h>
#include <stdlib.h>

enum cell { TANH, RELU, SIGMOID, LSTM, GRU_READ, GRU_STATE };

struct layer { /* as the kernel has it */
  long cell, additive, reverse, T, N, H, P, threads, masked, held, multiplied, D;
  const long *offset;
};

#define ARRAYS 18
struct values {
  union {
    struct {
      double *gates, *bias, *u, *w_hr, *z0, *carry, *eps, *mask, *z, *carries, *d_z, *d_state,
          *d_carry, *d_gates, *d_projected, *keep_h, *keep_c, *update;
    };
    double *array[ARRAYS];
  };
};

#define UNCHECKED __attribute__((no_sanitize("address", "undefined"))) /* for speed */

static long slots_of(long cell) { return cell < LSTM ? 1 : 4; }
static long recurrent_of(long cell) { return cell < LSTM ? 1 : cell == LSTM ? 4 : 3; }
static long outputs_of(const struct layer *l) { return l->P ? l->P : l->H; }
static long mask_rows_of(const struct layer *l) { return l->held ? l->N : l->offset[l->T]; }
static int is_carried(long cell) { return cell == LSTM || cell == GRU_READ; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static long row_of(const struct layer *l, long n, long i) { /* of the i-th step; -1: none */
  const long t = l->reverse ? l->T - 1 - i : i, row = l->offset[t] + n;
  return row < l->offset[t + 1] ? row : -1;
}

/* On what the gate of that number, of the recurrent ones, reads of unit k. */
UNCHECKED static double factor(const struct layer *l, const struct values *v, long row, long gate,
                               long k) {
  const long masks = l->masked, own = masks > 1 ? gate : 0;
  long start = 0;
  for (long t = 0; l->held && l->offset[t] <= row; ++t) start = l->offset[t]; /* of its step */
  return masks ? v->mask[((row - start) * masks + own) * outputs_of(l) + k] : 1;
}

/* How much of an old value is kept, and the factor on an update: none, or an array of any. */
UNCHECKED static double kept(const double *keep, long at, double old, double new) {
  return keep ? keep[at] * old + (1 - keep[at]) * new : new;
}
UNCHECKED static double past(const double *keep, long at, double d) { return keep ? keep[at] * d : 0; }
UNCHECKED static double on_update(const struct values *v, long at) {
  return v->update ? v->update[at] : 1;
}

/* The recurrent product of the only step into the gates, as the caller of a kernel does it. */
UNCHECKED static void plain_multiply(const struct layer *l, struct values *v) {
  const long H = l->H, G = slots_of(l->cell), R = recurrent_of(l->cell);
  for (long row = 0; row < l->N; ++row)
    for (long j = 0; j < R * H; ++j) {
      double *gate = v->gates + (row * G + G - R) * H + j;
      if (l->cell >= GRU_READ && j >= 2 * H) *gate = 0; /* slot m */
      for (long k = 0; k < H; ++k)
        *gate += v->u[j * H + k] * v->z0[row * H + k] * factor(l, v, row, j / H, k);
    }
}

UNCHECKED static void plain_step(const struct layer *l, struct values *v, long row, double *state,
                                 double *carry) {
  const long H = l->H, Z = outputs_of(l), G = slots_of(l->cell), R = recurrent_of(l->cell);
  double *z = v->z + row * Z, *hidden = malloc((size_t)H * sizeof(double));
  for (long j = 0; j < H; ++j) {
    double s[4] = {0}, h, *gate = v->gates + row * G * H + j;
    for (long g = 0; g < G; ++g) {
      if (!(l->cell >= GRU_READ && g == 3)) s[g] = gate[g * H]; /* nothing is in slot m */
      if (v->bias) s[g] += v->bias[g * H + j];
      double product = 0;
      if (g >= G - R)
        for (long k = 0; k < Z; ++k)
          product +=
              v->u[((g - G + R) * H + j) * Z + k] * state[k] * factor(l, v, row, g - G + R, k);
      s[g] += product;
    }
    if (l->cell == LSTM) {
      const double i = sigmoid(s[0]), f = sigmoid(s[1]), g = tanh(s[2]), o = sigmoid(s[3]);
      const double all[4] = {i, f, g, o};
      const double c = f * carry[j] + on_update(v, row * H + j) * i * g;
      carry[j] = kept(v->keep_c, row * H + j, carry[j], c);
      h = o * tanh(c);
      for (long q = 0; q < 4; ++q) gate[q * H] = all[q];
    } else if (l->cell >= GRU_READ) {
      const double r = sigmoid(s[1]), u = sigmoid(s[2]), m = s[3], n = tanh(s[0] + r * m);
      const double all[4] = {n, r, u, m};
      h = (1 - u) * n * on_update(v, row * H + j) + u * (l->cell == GRU_READ ? carry : state)[j];
      if (l->cell == GRU_READ) h = carry[j] = kept(v->keep_h, row * H + j, carry[j], h);
      for (long q = 0; q < 4; ++q) gate[q * H] = all[q];
    } else {
      h = l->cell == TANH ? tanh(s[0]) : l->cell == RELU ? fmax(s[0], 0) : sigmoid(s[0]);
      *gate = h;
    }
    if (is_carried(l->cell)) v->carries[row * H + j] = carry[j];
    hidden[j] = h;
  }
  for (long j = 0; j < Z; ++j) {
    double p = l->P ? 0 : hidden[j], e = v->eps[row * Z + j];
    for (long k = 0; k < H && l->P; ++k) p += v->w_hr[j * H + k] * hidden[k];
    if (l->cell != GRU_READ) p = kept(v->keep_h, row * Z + j, state[j], p);
    z[j] = l->additive ? p + e : p * (1 + e);
  }
  free(hidden);
}

/* Gates become activations, carry the final one; z and carries are filled. */
UNCHECKED static void plain_forward(const struct layer *l, struct values *v) {
  for (long n = 0; n < l->N; ++n) {
    double *state = v->z0 + n * outputs_of(l);
    for (long i = 0; i < l->T; ++i) {
      const long row = row_of(l, n, i);
      if (row < 0) continue;
      plain_step(l, v, row, state, v->carry + n * l->H);
      state = v->z + row * outputs_of(l);
    }
  }
}

UNCHECKED static void plain_step_back(const struct layer *l, struct values *v, long row,
                                      const double *before, double *d_state, double *d_carry) {
  const long H = l->H, Z = outputs_of(l), G = slots_of(l->cell), R = recurrent_of(l->cell);
  double *along = calloc((size_t)H, sizeof(double)); /* past the recurrent weights */
  double *emitted = malloc((size_t)Z * sizeof(double)), *held = calloc((size_t)Z, sizeof(double));
  for (long j = 0; j < Z; ++j) {
    emitted[j] = v->d_z[row * Z + j] + d_state[j];
    if (!l->additive) emitted[j] *= 1 + v->eps[row * Z + j];
    if (l->cell != GRU_READ) held[j] = past(v->keep_h, row * Z + j, emitted[j]);
    emitted[j] -= held[j];
    if (l->P) v->d_projected[row * Z + j] = emitted[j];
  }
  for (long j = 0; j < H; ++j) {
    const double *gate = v->gates + row * G * H + j, p = gate[0];
    double *d = v->d_gates + row * G * H + j, d_h = l->P ? 0 : emitted[j];
    for (long k = 0; k < l->P; ++k) d_h += emitted[k] * v->w_hr[k * H + j];
    if (l->cell == LSTM) {
      const double i = p, f = gate[H], g = gate[2 * H], o = gate[3 * H];
      const double m = on_update(v, row * H + j), s = tanh(f * before[j] + m * i * g);
      const double held_c = past(v->keep_c, row * H + j, d_carry[j]);
      const double d_c = d_carry[j] - held_c + d_h * o * (1 - s * s);
      d[0] = d_c * m * g * i * (1 - i), d[H] = d_c * before[j] * f * (1 - f);
      d[2 * H] = d_c * m * i * (1 - g * g), d[3 * H] = d_h * s * o * (1 - o);
      d_carry[j] = d_c * f + held_c;
    } else if (l->cell >= GRU_READ) {
      const double n = p, r = gate[H], u = gate[2 * H], m = gate[3 * H];
      double held_h = 0;
      if (l->cell == GRU_READ) d_h += d_carry[j], held_h = past(v->keep_h, row * H + j, d_h);
      d_h -= held_h;
      const double by = on_update(v, row * H + j), d_n = d_h * (1 - u) * by * (1 - n * n);
      d[0] = d_n, d[H] = d_n * m * r * (1 - r);
      d[2 * H] = d_h * (before[j] - by * n) * u * (1 - u), d[3 * H] = d_n * r;
      if (l->cell == GRU_READ) d_carry[j] = d_h * u + held_h;
      else along[j] = d_h * u;
    } else {
      d[0] = d_h * (l->cell == TANH ? 1 - p * p : l->cell == RELU ? p > 0 : p * (1 - p));
    }
  }
  const double *d = v->d_gates + row * G * H + (G - R) * H;
  for (long j = 0; j < R * H; ++j)
    for (long k = 0; k < Z; ++k) along[k] += d[j] * v->u[j * Z + k] * factor(l, v, row, j / H, k);
  for (long k = 0; k < Z; ++k) d_state[k] = along[k] + held[k];
  free(along), free(emitted), free(held);
}

/* The gradients of the final state become those of the initial one; d_gates is filled. */
UNCHECKED static void plain_backward(const struct layer *l, struct values *v) {
  const double *initial = is_carried(l->cell) ? v->carry : v->z0;
  const double *steps = is_carried(l->cell) ? v->carries : v->z;
  for (long n = 0; n < l->N; ++n)
    for (long i = l->T - 1; i >= 0; --i) {
      const long row = row_of(l, n, i);
      if (row < 0) continue;
      long earlier = i - 1;
      while (earlier >= 0 && row_of(l, n, earlier) < 0) --earlier;
      const double *before =
          earlier < 0 ? initial + n * l->H : steps + row_of(l, n, earlier) * l->H;
      plain_step_back(l, v, row, before, v->d_state + n * outputs_of(l),
                      v->d_carry + n * l->H);
    }
}
