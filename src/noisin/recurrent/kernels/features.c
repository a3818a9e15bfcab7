/* Which instruction sets the processor has and the operating system lets programs use: part of the
   baseline library of a wheel. The names are those of VARIANTS in targets.py. */
#if defined(__x86_64__)
#define FEATURE(name) \
  int has_##name(void) { return __builtin_cpu_supports(#name) != 0; }
FEATURE(avx2)
FEATURE(fma)
FEATURE(avx512f)
FEATURE(avx512bw)
FEATURE(avx512dq)
FEATURE(avx512vl)
#else
typedef int nothing; /* there is only the baseline */
#endif
