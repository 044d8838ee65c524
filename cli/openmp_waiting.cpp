// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

// How OpenMP's threads wait for each other. By default they spin for milliseconds: on a machine
// that does anything else meanwhile, the spinning thread takes the core of the one it waits for,
// and a small model's step takes ten times as long. Spinning briefly and then sleeping costs little
// when the machine is idle.
namespace {

void choose_waiting(int, char**, char**) { ::setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0); }

// The OpenMP library reads the variable when it is loaded, before main and every constructor; only
// what stands in this section runs earlier.
__attribute__((section(".preinit_array"),
               used)) void (*const kChooseWaiting)(int, char**, char**) = choose_waiting;

}  // namespace
