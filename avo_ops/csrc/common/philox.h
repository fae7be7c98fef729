// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), for device code and the CPU
// alike. definitions/random.py has the same in torch.
#pragma once

#ifndef __CUDACC__
#include <cstdint>
#endif

#ifdef __CUDACC__
#define AVO_UNROLL _Pragma("unroll")
#else
#define AVO_UNROLL
#endif
#ifndef AVO_PHILOX
#define AVO_PHILOX static inline
#endif

// One round on `n` counters side by side: w[k][i] is word k of counter i.
template <int n> AVO_PHILOX void avo_philox_round(uint32_t (&w)[4][n], uint32_t key0, uint32_t key1) {
  AVO_UNROLL
  for (int i = 0; i < n; ++i) {
    const uint64_t a = uint64_t(w[0][i]) * 0xD2511F53u, b = uint64_t(w[2][i]) * 0xCD9E8D57u;
    w[0][i] = uint32_t(b >> 32) ^ w[1][i] ^ key0;
    w[1][i] = uint32_t(b);
    w[2][i] = uint32_t(a >> 32) ^ w[3][i] ^ key1;
    w[3][i] = uint32_t(a);
  }
}

// Four numbers of 32 bits for each of the counters counter, counter + 1, ...
template <int n> AVO_PHILOX void avo_philox(uint64_t seed, uint64_t counter, uint32_t (&w)[4][n]) {
  AVO_UNROLL
  for (int i = 0; i < n; ++i) {
    const uint64_t own = counter + i;
    w[0][i] = uint32_t(own);
    w[1][i] = uint32_t(own >> 32);
    w[2][i] = w[3][i] = 0;
  }
  uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
  AVO_UNROLL
  for (int round = 0; round < 10; ++round) {
    avo_philox_round(w, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}
