/* Calls of the compiled kernel for one REAL, in arrays of exactly their sizes. */

extern const long NAME(tiling)[];
long NAME(room)(const struct layer *l, long back);
struct NAME(factors) {
  REAL *keep_h, *keep_c, *update;
};
#define FORWARD                                                                             \
  const struct layer *, REAL *, REAL *, const REAL *, const REAL *, const REAL *,           \
      const REAL *, REAL *, const REAL *, const REAL *, REAL *, REAL *
#define BACKWARD                                                                            \
  const struct layer *, REAL *, const REAL *, const REAL *, const REAL *, const REAL *,     \
      const REAL *, const REAL *, const REAL *, const REAL *, const REAL *, const REAL *,   \
      REAL *, REAL *, REAL *, REAL *
void NAME(forward)(FORWARD);
void NAME(forward_factored)(const struct NAME(factors) *, FORWARD);
void NAME(backward)(BACKWARD);
void NAME(backward_factored)(const struct NAME(factors) *, BACKWARD);
#undef FORWARD
#undef BACKWARD

static REAL *NAME(filled)(long n) { /* with NaN: what is read before it is written shows */
  REAL *array = malloc((size_t)n * sizeof(REAL));
  for (long i = 0; i < n; ++i) array[i] = (REAL)NAN;
  return array;
}

static REAL *NAME(narrow)(const double *from, long n) {
  if (!from) return 0;
  REAL *array = NAME(filled)(n);
  for (long i = 0; i < n; ++i) array[i] = (REAL)from[i];
  return array;
}

static void NAME(widen)(double *to, const REAL *from, long n) {
  for (long i = 0; i < n && from; ++i) to[i] = (double)from[i];
}

static struct NAME(factors) NAME(factors_of)(const struct layer *l, const struct values *v) {
  const long S = l->offset[l->T];
  return (struct NAME(factors)){NAME(narrow)(v->keep_h, S * outputs_of(l)),
                                NAME(narrow)(v->keep_c, S * l->H),
                                NAME(narrow)(v->update, S * l->H)};
}
static int NAME(is_factored)(const struct NAME(factors) *k) {
  return k->keep_h || k->keep_c || k->update;
}
static void NAME(release)(struct NAME(factors) *k) {
  free(k->keep_h), free(k->keep_c), free(k->update);
}

/* Put into v what the kernel makes of it, as plain_forward does. */
static void NAME(call_forward)(const struct layer *l, struct values *v, int keep) {
  const long S = l->offset[l->T], H = l->H, G = slots_of(l->cell), R = recurrent_of(l->cell);
  const int carried = is_carried(l->cell);
  const long Z = outputs_of(l);
  if (l->multiplied) plain_multiply(l, v);
  REAL *gates = NAME(narrow)(v->gates, S * G * H), *bias = NAME(narrow)(v->bias, G * H);
  REAL *u = NAME(narrow)(v->u, R * H * Z), *z0 = NAME(narrow)(v->z0, l->N * Z);
  if (l->multiplied) free(u), u = 0;
  REAL *w_hr = l->P ? NAME(narrow)(v->w_hr, Z * H) : 0;
  REAL *carry = carried ? NAME(narrow)(v->carry, l->N * H) : 0;
  REAL *eps = NAME(narrow)(v->eps, S * Z), *z = NAME(filled)(S * Z);
  REAL *mask = l->masked ? NAME(narrow)(v->mask, mask_rows_of(l) * l->masked * Z) : 0;
  REAL *carries = carried && keep ? NAME(filled)(S * H) : 0;
  REAL *room = NAME(filled)(NAME(room)(l, 0));
  struct NAME(factors) k = NAME(factors_of)(l, v);
  if (NAME(is_factored)(&k))
    NAME(forward_factored)(&k, l, room, gates, bias, u, w_hr, z0, carry, eps, mask, z, carries);
  else NAME(forward)(l, room, gates, bias, u, w_hr, z0, carry, eps, mask, z, carries);
  NAME(release)(&k);
  NAME(widen)(v->gates, gates, S * G * H), NAME(widen)(v->carry, carry, l->N * H);
  NAME(widen)(v->z, z, S * Z), NAME(widen)(v->carries, carries, S * H);
  free(gates), free(bias), free(u), free(z0), free(carry), free(eps), free(z), free(carries);
  free(room), free(mask), free(w_hr);
}

/* As plain_backward does. */
static void NAME(call_backward)(const struct layer *l, struct values *v) {
  const long S = l->offset[l->T], H = l->H, G = slots_of(l->cell), R = recurrent_of(l->cell);
  const int carried = is_carried(l->cell);
  const long Z = outputs_of(l);
  REAL *gates = NAME(narrow)(v->gates, S * G * H), *u = NAME(narrow)(v->u, R * H * Z);
  if (l->multiplied) free(u), u = 0;
  REAL *w_hr = l->P ? NAME(narrow)(v->w_hr, Z * H) : 0;
  REAL *d_projected = l->P ? NAME(filled)(S * Z) : 0;
  REAL *z0 = NAME(narrow)(v->z0, l->N * Z), *eps = NAME(narrow)(v->eps, S * Z);
  REAL *mask = l->masked ? NAME(narrow)(v->mask, mask_rows_of(l) * l->masked * Z) : 0;
  REAL *carry0 = carried ? NAME(narrow)(v->carry, l->N * H) : 0;
  REAL *z = NAME(narrow)(v->z, S * Z), *carries = carried ? NAME(narrow)(v->carries, S * H) : 0;
  REAL *d_z = NAME(narrow)(v->d_z, S * Z), *d_state = NAME(narrow)(v->d_state, l->N * Z);
  REAL *d_carry = carried ? NAME(narrow)(v->d_carry, l->N * H) : NAME(filled)(l->N * H);
  REAL *d_gates = NAME(filled)((S - 1) * l->D + G * H), *room = NAME(filled)(NAME(room)(l, 1));
  struct NAME(factors) k = NAME(factors_of)(l, v);
  if (NAME(is_factored)(&k))
    NAME(backward_factored)(&k, l, room, gates, u, w_hr, z0, carry0, eps, mask, z, carries, d_z,
                            d_state, d_carry, d_gates, d_projected);
  else
    NAME(backward)(l, room, gates, u, w_hr, z0, carry0, eps, mask, z, carries, d_z, d_state,
                   d_carry, d_gates, d_projected);
  NAME(release)(&k);
  NAME(widen)(v->d_projected, d_projected, S * Z);
  NAME(widen)(v->d_state, d_state, l->N * Z);
  for (long s = 0; s < S; ++s) NAME(widen)(v->d_gates + s * G * H, d_gates + s * l->D, G * H);
  if (carried) NAME(widen)(v->d_carry, d_carry, l->N * H);
  free(gates), free(u), free(z0), free(eps), free(carry0), free(z), free(carries), free(d_z);
  free(d_state), free(d_carry), free(d_gates), free(room), free(mask);
  free(w_hr), free(d_projected);
}
