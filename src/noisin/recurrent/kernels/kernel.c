/* The recurrences in both precisions. SHIFT = 1.5 · 2^MANTISSA; LN2_HIGH + LN2_LOW = log 2. */
#define REAL float
#define INTEGER int
#define NAME(x) x##_float
#define BIAS 127
#define SHIFT 12582912.0f
#define MANTISSA 23
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
#define DEGREE 7
#include "cells.h"
#include "gemm.h"
#undef REAL
#undef INTEGER
#undef NAME
#undef BIAS
#undef SHIFT
#undef MANTISSA
#undef LN2_HIGH
#undef LN2_LOW
#undef DEGREE
#define REAL double
#define INTEGER long long
#define NAME(x) x##_double
#define BIAS 1023
#define SHIFT 6755399441055744.0
#define MANTISSA 52
#define LN2_HIGH 6.93145751953125e-1
#define LN2_LOW 1.42860682030941723212e-6
#define DEGREE 12
#include "cells.h"
#include "gemm.h"
