/* Run the compiled kernel over its shapes and compare it with plain loops.

     driver pairwise|product FIRST LAST

   Built with sanitizers, of a kernel that is, too. Every number of sequences N from FIRST to LAST;
   of everything else all pairs occur, or all combinations. Exits with 1 at the first difference. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "plain.h"

#define REAL float
#define NAME(x) x##_float
#include "calls.h"
#undef REAL
#undef NAME
#define REAL double
#define NAME(x) x##_double
#include "calls.h"

enum factor {
  CELL, DOUBLE, ADDITIVE, REVERSE, STEPS, PACKING, UNITS, PROJECTION, THREADS, BIAS, KEEP, MASK,
  MULTIPLIED, KEPT, HELD, FACTORS
};
#define MOST_LEVELS 7
static const int levels[FACTORS] = {7, 2, 2, 2, 2, 3, 5, 4, 4, 2, 2, 3, 2, 4, 2};
static const char *const names[FACTORS] = {"cell",  "double",     "additive", "reverse",
                                           "steps", "packing",    "units",    "projection",
                                           "threads", "bias",     "keep",     "mask",
                                           "multiplied", "kept",  "held"};
static const double most_work = 5e5, tolerance[] = {2e-5, 1e-12};

static uint64_t stream;
static uint64_t draw(void) { /* splitmix64 */
  uint64_t x = stream += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static double *drawn(long n, double scale) { /* numbers that float holds */
  double *array = malloc((size_t)n * sizeof(double));
  for (long i = 0; i < n; ++i)
    array[i] = (float)(scale * ((double)(draw() >> 11) / 4503599627370496.0 - 1));
  return array;
}

/* Odd numbers around the edges of vectors and of blocks, of which four threads have one each. */
static long units(const int *at) {
  const long block = (at[DOUBLE] ? tiling_double : tiling_float)[4];
  const long sizes[] = {1, block / 2 - 1, block / 2 + 1, block + 1, 3 * block + 1};
  return sizes[at[UNITS]];
}

/* The seventh cell is the LSTM with a projection, to no more units than it has. */
static int is_projected(const int *at) { return at[CELL] > GRU_STATE; }
static long cell_of(const int *at) { return is_projected(at) ? LSTM : at[CELL]; }
static long projection(const int *at) {
  const long block = (at[DOUBLE] ? tiling_double : tiling_float)[4], H = units(at);
  const long sizes[] = {1, block - 1, block + 1, H - 1}, P = sizes[at[PROJECTION]];
  return !is_projected(at) ? 0 : P < 1 ? 1 : P < H ? P : H;
}

/* Levels of MASK: none, one, one for each recurrent gate. */
static long masks(const int *at) { return at[MASK] < 2 ? at[MASK] : recurrent_of(cell_of(at)); }

static long steps(const int *at) { return 1 + 2 * at[STEPS]; }

static double work(const int *at, long N) {
  return (double)(N * steps(at) * recurrent_of(cell_of(at))) * (double)(units(at) * units(at));
}

static void set_offsets(const int *at, long N, long *offset) {
  offset[0] = 0;
  for (long t = 0; t < steps(at); ++t) {
    const long fewer[] = {N, N - t * (N / 3), t ? 1 : N};
    offset[t + 1] = offset[t] + fewer[at[PACKING]];
  }
}

static void compare(const char *what, const int *at, const struct layer *l, const double *found,
                    const double *expected, long n) {
  for (long i = 0; i < n; ++i)
    if (!(fabs(found[i] - expected[i]) <= tolerance[at[DOUBLE]] * (1 + fabs(expected[i])))) {
      fprintf(stderr, "%s[%ld] is %.17g, expected %.17g, at N=%ld T=%ld H=%ld P=%ld, %ld threads,",
              what, i, found[i], expected[i], l->N, l->T, l->H, l->P, l->threads);
      for (int f = 0; f < FACTORS; ++f) fprintf(stderr, " %s=%d", names[f], at[f]);
      fprintf(stderr, "\n");
      exit(1);
    }
}

/* How many numbers each array of struct values has, in its order. */
static void set_sizes(const struct layer *l, long *sizes) {
  const long H = l->H, gates = slots_of(l->cell) * H, S = l->offset[l->T], N = l->N;
  const long Z = outputs_of(l), all[] = {
      S * gates, gates, recurrent_of(l->cell) * H * Z, Z * H, N * Z, N * H, S * Z, mask_rows_of(l) * l->masked * Z,
      S * Z,     S * H, S * Z,                         N * Z, N * H, S * gates, S * Z,
      S * Z,     S * H, S * H};
  memcpy(sizes, all, sizeof(all));
}

static struct values copied(const struct layer *l, const struct values *from) {
  long sizes[ARRAYS];
  struct values to;
  set_sizes(l, sizes);
  for (int i = 0; i < ARRAYS; ++i) {
    const size_t bytes = (size_t)sizes[i] * sizeof(double);
    to.array[i] = from->array[i] ? memcpy(malloc(bytes), from->array[i], bytes) : 0;
  }
  return to;
}

static void released(struct values *v) {
  for (int i = 0; i < ARRAYS; ++i) free(v->array[i]);
}

static struct values inputs(const struct layer *l, const int *at) {
  long sizes[ARRAYS];
  struct values v;
  set_sizes(l, sizes);
  for (int i = 0; i < ARRAYS; ++i) v.array[i] = drawn(sizes[i], 1);
  for (long i = 0; i < recurrent_of(l->cell) * l->H * outputs_of(l); ++i)
    v.u[i] = (float)(v.u[i] / sqrt((double)l->H));
  for (long i = 0; i < l->P * l->H; ++i) v.w_hr[i] = (float)(v.w_hr[i] / sqrt((double)l->H));
  for (long i = 0; i < l->offset[l->T] && l->cell >= GRU_READ; ++i)
    for (long j = 3 * l->H; j < 4 * l->H; ++j) v.gates[i * 4 * l->H + j] = NAN; /* slot m */
  if (!at[BIAS]) free(v.bias), v.bias = 0;
  /* Levels of KEPT: no factor, all, that on h, those on c. Only cells that have it keep a memory. */
  if (at[KEPT] != 1 && at[KEPT] != 2) free(v.keep_h), v.keep_h = 0;
  if ((at[KEPT] != 1 && at[KEPT] != 3) || l->cell != LSTM) free(v.keep_c), v.keep_c = 0;
  if ((at[KEPT] != 1 && at[KEPT] != 3) || l->cell < LSTM) free(v.update), v.update = 0;
  return v;
}

/* One case with so many threads. What is expected of backward follows from what forward found, with
   whatever number of threads came first. */
static void check(const struct layer *l, const int *at, const struct values *given,
                  const struct values *expected, struct values *back) {
  const long N = l->N, H = l->H, Z = outputs_of(l), S = l->offset[l->T];
  const long gates = S * slots_of(l->cell) * H;
  const int carried = is_carried(l->cell);
  struct values found = copied(l, given);
  (at[DOUBLE] ? call_forward_double : call_forward_float)(l, &found, at[KEEP]);
  compare("z", at, l, found.z, expected->z, S * Z);
  compare("gates", at, l, found.gates, expected->gates, gates);
  if (carried) compare("carry", at, l, found.carry, expected->carry, N * H);
  if (carried && at[KEEP]) compare("carries", at, l, found.carries, expected->carries, S * H);
  if (at[KEEP]) {
    memcpy(found.carry, given->carry, (size_t)(N * H) * sizeof(double));
    if (!back->z) *back = copied(l, &found), plain_backward(l, back);
    (at[DOUBLE] ? call_backward_double : call_backward_float)(l, &found);
    compare("d_gates", at, l, found.d_gates, back->d_gates, gates);
    if (!l->multiplied) compare("d_state", at, l, found.d_state, back->d_state, N * Z);
    compare("d_projected", at, l, found.d_projected, back->d_projected, l->P ? S * Z : 0);
    if (carried) compare("d_carry", at, l, found.d_carry, back->d_carry, N * H);
  }
  released(&found);
}

/* A combination of levels, with the threads of its level, or with each number of them. */
static void try(const int *at, long N, int all_threads) {
  long offset[4];
  set_offsets(at, N, offset);
  struct layer l = {cell_of(at), at[ADDITIVE],   at[REVERSE], steps(at), N,
                    units(at),   projection(at), 1,           masks(at), at[HELD],
                    0,           0,              offset};
  l.multiplied = at[MULTIPLIED] && l.T == 1 && !l.P;
  l.D = slots_of(l.cell) * l.H + 3 * at[BIAS]; /* with and without room between rows */
  struct values given = inputs(&l, at), expected = copied(&l, &given), back = {0};
  plain_forward(&l, &expected);
  for (int level = 0; level < levels[THREADS]; ++level) {
    l.threads = level + 1;
    if (all_threads || level == at[THREADS]) check(&l, at, &given, &expected, &back);
  }
  released(&given), released(&expected), released(&back);
}

typedef char pairs[FACTORS][FACTORS][MOST_LEVELS][MOST_LEVELS];

static void try_and_note(const int *at, long N, pairs seen) {
  try(at, N, 0);
  for (int f = 0; f < FACTORS; ++f)
    for (int g = 0; g < FACTORS; ++g) seen[f][g][at[f]][at[g]] = 1;
}

static void draw_levels(int *at) {
  for (int f = 0; f < FACTORS; ++f) at[f] = (int)(draw() % (uint64_t)levels[f]);
}

/* Levels at random, at every N. */
static long pairwise(long N, pairs seen) {
  int at[FACTORS];
  for (int i = 0; i < 2; ++i) {
    draw_levels(at);
    at[DOUBLE] = i; /* at every N both, and one of them backward */
    at[KEEP] |= i == N % 2;
    while (work(at, N) > most_work) --at[at[UNITS] ? UNITS : STEPS];
    try_and_note(at, N, seen);
  }
  return 2;
}

/* The pairs of levels that no random case had, at the smallest N: how many levels there are, and so
   which of their pairs are drawn, depends on the instruction set. */
static long remaining(long N, pairs seen) {
  long cases = 0;
  int at[FACTORS];
  for (int f = 0; f < FACTORS; ++f)
    for (int g = 0; g < f; ++g)
      for (int i = 0; i < levels[f]; ++i)
        for (int j = 0; j < levels[g]; ++j)
          if (!seen[f][g][i][j])
            draw_levels(at), at[f] = i, at[g] = j, try_and_note(at, N, seen), ++cases;
  return cases;
}

static long product(long N) {
  long cases = 0;
  int at[FACTORS] = {0};
  for (int f = 0; f < FACTORS;) {
    at[BIAS] = (int)(draw() % 2), at[MASK] = (int)(draw() % 3);
    at[MULTIPLIED] = (int)(draw() % 2), at[KEPT] = (int)(draw() % 4);
    at[HELD] = (int)(draw() % 2);
    at[KEEP] = 1;
    if (work(at, N) <= most_work) try(at, N, 1), cases += levels[THREADS];
    for (f = 0; f < FACTORS && (f >= THREADS || ++at[f] == levels[f]); ++f) at[f] = 0;
  }
  return cases;
}

int main(int count, char **arguments) {
  static pairs seen;
  if (count != 4) return fprintf(stderr, "driver pairwise|product FIRST LAST\n"), 2;
  const int all = !strcmp(arguments[1], "product");
  const long first = atol(arguments[2]), last = atol(arguments[3]);
  long cases = 0;
  for (long N = first; N <= last; ++N) {
    stream = (uint64_t)(3000 + N);
    cases += all ? product(N) : pairwise(N, seen);
  }
  if (!all) cases += remaining(first, seen);
  printf("%ld cases\n", cases);
  return 0;
}
