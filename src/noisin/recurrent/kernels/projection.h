/* An LSTM's projection: z = noise on p = W h, of P units, which is what the recurrence reads.

   As cells.h, which includes it, this file is compiled for each REAL. Forward, h of one step is
   written by the owners of its units and then read by all; backward, so is the gradient of p, which
   is kept for all steps because the gradient of W follows from it. */

struct NAME(projection) {
  const REAL *w;     /* (P, H) */
  long first, last;  /* the blocks of z that this thread owns */
  REAL *panels;      /* forward (H, ·) for each block of z, backward (P, ·) for each of h */
  REAL *h;           /* forward: (N, H), of one step */
  REAL *d_projected; /* backward: (S, P) */
  const REAL *keep_h; /* (S, P): how much of the z before is kept, or none */
};

INLINE long NAME(blocks)(long units) { return (units + BLOCK - 1) / BLOCK; }

/* How many REALs of room the panels of U need, those of W, and h. */
INLINE long NAME(panels)(const struct layer *l, long back) {
  const long Z = outputs(l), rows = back ? l->H : Z, columns = back ? Z : l->H;
  return NAME(blocks)(columns) * BLOCK * recurrent(l->cell) * rows;
}
INLINE long NAME(projection_panels)(const struct layer *l, long back) {
  const long rows = back ? l->P : l->H, columns = back ? l->H : l->P;
  return l->P ? NAME(blocks)(columns) * BLOCK * rows : 0;
}
INLINE long NAME(projection_h)(const struct layer *l, long back) {
  return l->P && !back ? l->N * l->H : 0;
}

/* A thread's part of the projection, whose room follows the panels of U. */
INLINE struct NAME(projection) NAME(part)(const struct layer *l, const REAL *w, REAL *room,
                                          REAL *d_projected, long back, const REAL *keep_h) {
  const long blocks = NAME(blocks)(outputs(l));
  REAL *panels = room + NAME(panels)(l, back);
  return (struct NAME(projection)){
      w, blocks * THREAD / THREADS, blocks * (THREAD + 1) / THREADS, panels,
      panels + NAME(projection_panels)(l, back), d_projected, keep_h};
}

INLINE void NAME(pack_projection)(const struct layer *l, const struct NAME(projection) *p) {
  const long H = l->H;
  for (long b = p->first; b < p->last; ++b)
    NAME(pack)(p->panels + b * H * BLOCK, p->w + b * BLOCK * H, H, 1, H,
               least(BLOCK, l->P - b * BLOCK));
}

INLINE void NAME(pack_projection_back)(const struct layer *l, long first, long last,
                                       const struct NAME(projection) *p) {
  const long H = l->H, P = l->P;
  for (long b = first; b < last; ++b)
    NAME(pack)(p->panels + b * P * BLOCK, p->w + b * BLOCK, P, H, 1, least(BLOCK, H - b * BLOCK));
}

/* The thread's units of z_t from h_t, of the i-th step. */
INLINE void NAME(project)(const struct layer *l, long i, const struct NAME(projection) *p,
                          VEC sum[CHUNK][2], const REAL *z0, const REAL *eps, REAL *z) {
  const long H = l->H, P = l->P, t = ordered(l, i), start = l->offset[t];
  const long rows = l->offset[t + 1] - start;
  for (long row = 0; row < rows; row += CHUNK) {
    const long chunk = least(CHUNK, rows - row);
    const REAL *a[CHUNK];
    for (long r = 0; r < chunk; ++r) a[r] = p->h + (row + r) * H;
    for (long b = p->first; b < p->last; ++b) {
      NAME(product)(H, chunk, a, p->panels + b * H * BLOCK, sum);
      for (long r = 0; r < chunk; ++r)
        for (long v = 0; v < 2; ++v) {
          const long j = b * BLOCK + v * LANES, n = P - j, here = (start + row + r) * P + j;
          if (n <= 0) continue;
          VEC h = sum[r][v];
          if (p->keep_h)
            h = NAME(kept)(n, p->keep_h + here, NAME(before)(l, i, row + r, P, z, z0) + j, h);
          NAME(emit)(l->additive, n, h, eps + here, z + here);
        }
    }
  }
}

/* The gradient of p_t, of the thread's units of z. */
INLINE void NAME(emit_projected_back)(const struct layer *l, long start, long rows,
                                      const struct NAME(projection) *p, const REAL *eps,
                                      const REAL *d_z, const REAL *d_state) {
  const long P = l->P, from = p->first * BLOCK, to = least(p->last * BLOCK, P);
  for (long row = 0; row < rows; ++row)
    for (long j = from; j < to; j += LANES) {
      const long here = (start + row) * P + j, n = to - j;
      VEC d = NAME(emit_back)(l->additive, n, eps + here, d_z + here, d_state + row * P + j);
      if (p->keep_h) d -= LOAD(p->keep_h + here) * d;
      STORE(p->d_projected + here, d);
    }
}

/* The gradients of the gates and the carry of the i-th step, of the thread's units of h. */
INLINE void NAME(project_back)(const struct layer *l, long i, long first, long last,
                               const struct NAME(projection) *p, VEC sum[CHUNK][2],
                               const REAL *gates, const REAL *carry0, const REAL *carries,
                               REAL *d_carry, REAL *d_gates, struct NAME(factors) k) {
  const long H = l->H, P = l->P, t = ordered(l, i), start = l->offset[t];
  const long rows = l->offset[t + 1] - start;
  for (long row = 0; row < rows; row += CHUNK) {
    const long chunk = least(CHUNK, rows - row);
    const REAL *a[CHUNK];
    for (long r = 0; r < chunk; ++r) a[r] = p->d_projected + (start + row + r) * P;
    for (long b = first; b < last; ++b) {
      NAME(product)(P, chunk, a, p->panels + b * P * BLOCK, sum);
      for (long r = 0; r < chunk; ++r) {
        const REAL *before = NAME(before)(l, i, row + r, H, carries, carry0);
        for (long v = 0; v < 2; ++v) {
          const long j = b * BLOCK + v * LANES, n = H - j, at = start + row + r;
          if (n > 0)
            NAME(step_back)(LSTM, H, n, sum[r][v], gates + at * 4 * H + j, carries + at * H + j,
                            before + j, d_carry + (row + r) * H + j, d_gates + at * l->D + j,
                            NAME(of_units)(k, 1, at * H + j));
        }
      }
    }
  }
}
