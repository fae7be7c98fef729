// Coefficients of the polynomials that the CPU kernels and the device kernels share.
// Written by tools/fit_math.py, which proves the bounds: change it there. Highest power first.
#pragma once

// The scale s of erfc's variable k = 1 / (1 + s |z|).
#define AVO_ERFC_SCALE 0.375f
// The same of the normal distribution's tail, and where results are bfloat16.
#define AVO_NDTR_SCALE 0.265625f
#define AVO_NDTR_SCALE_ROUGH 0.375f
// sqrt(1/2) in two parts, and 1/sqrt(pi).
#define AVO_SQRT_HALF 0.70710678118654757
#define AVO_SQRT_HALF_LOW -4.8336466567264567e-17
#define AVO_SQRT_1_PI 0.56418958354775628

// exp(r) = 1 + (r + r^2 P(r)), |r| <= ln(2)/2; relative to expm1(r).
// Error of the rounded polynomial <= 1.71e-8.
#define AVO_POLYNOMIAL_EXP_F32 \
  0.00138827763f, 0.00836650841f, 0.0416671969f, 0.166665435f, \
  0.49999997f

// the same for double.
// Error of the rounded polynomial <= 1.05e-18.
#define AVO_POLYNOMIAL_EXP_F64 \
  2.0875522140224379e-09, 2.5108957792829399e-08, 2.7557401931095008e-07, 2.7557244439205783e-06, \
  2.480158717351822e-05, 0.00019841269885895576, 0.0013888888888961761, 0.0083333333333217227, \
  0.041666666666666512, 0.16666666666666677, 0.5

// log(1 + f) = f - f^2/2 + f^3 P(f), 1 + f in [sqrt(1/2), sqrt(2)]; relative.
// Error of the rounded polynomial <= 1.07e-9.
#define AVO_POLYNOMIAL_LOG_F32 \
  0.0675289407f, -0.116706766f, 0.11882215f, -0.124060601f, \
  0.142205209f, -0.166680023f, 0.200020641f, -0.250000089f, \
  0.333333135f

// tanh(x) = x + x^3 P(x^2), |x| <= 0.625; relative to tanh(x).
// Error of the rounded polynomial <= 8.35e-9.
#define AVO_POLYNOMIAL_TANH_F32 \
  -0.00570949493f, 0.0206436645f, -0.0537413545f, 0.133314654f, \
  -0.333332837f

// the same for double.
// Error of the rounded polynomial <= 5.29e-18.
#define AVO_POLYNOMIAL_TANH_F64 \
  6.0554664071232345e-06, -3.0218617822369217e-05, 9.1591714019398617e-05, -0.00023703211029816671, \
  0.00058945974994437707, -0.0014557280100679804, 0.0035921143594275949, -0.0088632343542537923, \
  0.021869488471814445, -0.053968253966196748, 0.13333333333330064, -0.33333333333333315

// erf(z) = z + z P(z^2), |z| <= 1; relative to erf(z).
// Error of the rounded polynomial <= 2.25e-9.
#define AVO_POLYNOMIAL_ERF_F32 \
  7.85386874e-05f, -0.000801019603f, 0.00518832775f, -0.0268538129f, \
  0.112835854f, -0.37612626f, 0.128379166f

// erfc(z) = exp(-z^2) k P(k), k = 1 / (1 + s z), 0 <= z <= 10.25; relative.
// Error of the rounded polynomial <= 2.68e-8.
#define AVO_POLYNOMIAL_ERFC_F32 \
  0.0612629279f, -0.286030173f, 0.429792166f, -0.226517349f, \
  0.271778792f, 0.122312903f, 0.205111429f, 0.21067743f, \
  0.211611867f

// erfc(z) = exp(-z^2) k P(k), k = 1 / (1 + s z), 0 <= z <= 10.25; relative; for 16-bit results.
// Error of the rounded polynomial <= 6.65e-7.
#define AVO_POLYNOMIAL_ERFC_COARSE \
  -0.13509579f, 0.387937427f, -0.12959674f, 0.283061147f, \
  0.16666472f, 0.215689152f, 0.211339444f

// Phi(x) = 1/2 + x P(x^2), |x| <= 1; relative to Phi(-|x|).
// Error of the rounded polynomial <= 4.86e-8.
#define AVO_POLYNOMIAL_NDTR_NEAR_F32 \
  5.25047426e-07f, -9.2342907e-06f, 0.000115269962f, -0.0011872577f, \
  0.0099735409f, -0.066490382f, 0.398942292f

// Phi(-x) = exp(-x^2 / 2) k P(k), k = 1 / (1 + s x), 0 <= x <= 14.5; relative.
// Error of the rounded polynomial <= 2.52e-8.
#define AVO_POLYNOMIAL_NDTR_F32 \
  0.0306456517f, -0.142197371f, 0.211930037f, -0.110375457f, \
  0.134024456f, 0.0618883371f, 0.102556437f, 0.105539344f, \
  0.10598857f

// Phi(-x) = exp(-x^2 / 2) k P(k), k = 1 / (1 + s x), 0 <= x <= 14.5; relative; for float16 results.
// Error of the rounded polynomial <= 7.0e-7.
#define AVO_POLYNOMIAL_NDTR_F16 \
  -0.0668881312f, 0.190380186f, -0.0605249517f, 0.138919681f, \
  0.0843757614f, 0.107873209f, 0.105863906f

// Phi(-x) = exp(-x^2 / 2) k P(k), k = 1 / (1 + s x), 0 <= x <= 14.5; relative; for bfloat16 results.
// Error of the rounded polynomial <= 3.35e-5.
#define AVO_POLYNOMIAL_NDTR_BF16 \
  -0.0903176665f, 0.199558288f, 0.0841233954f, 0.157558382f, \
  0.149079651f
