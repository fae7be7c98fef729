// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), for device code and the CPU
// alike. definitions/random.py has the same in torch.
#pragma once

#ifdef __CUDACC__
#define AVO_UNROLL _Pragma("unroll")
#else
#define AVO_UNROLL
#endif
#ifndef AVO_PHILOX
#define AVO_PHILOX static inline
#endif

// One round on `n` counters side by side: w[k][i] is word k of counter i.
template <int n> AVO_PHILOX void avo_philox_round(unsigned (&w)[4][n], unsigned key0, unsigned key1) {
  AVO_UNROLL
  for (int i = 0; i < n; ++i) {
    const unsigned long long a = 1ull * w[0][i] * 0xD2511F53u, b = 1ull * w[2][i] * 0xCD9E8D57u;
    w[0][i] = unsigned(b >> 32) ^ w[1][i] ^ key0;
    w[1][i] = unsigned(b);
    w[2][i] = unsigned(a >> 32) ^ w[3][i] ^ key1;
    w[3][i] = unsigned(a);
  }
}

// Four numbers of 32 bits for each of the counters counter, counter + 1, ...
template <int n> AVO_PHILOX void avo_philox(unsigned long long seed, unsigned long long counter, unsigned (&w)[4][n]) {
  AVO_UNROLL
  for (int i = 0; i < n; ++i) {
    const unsigned long long own = counter + i;
    w[0][i] = unsigned(own);
    w[1][i] = unsigned(own >> 32);
    w[2][i] = w[3][i] = 0;
  }
  unsigned key0 = unsigned(seed), key1 = unsigned(seed >> 32);
  AVO_UNROLL
  for (int round = 0; round < 10; ++round) {
    avo_philox_round(w, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}
