// SPDX-License-Identifier: Apache-2.0
// Linked into each program that the address sanitizer watches (preset asan): libraries stay loaded
// to the end.
//
// OpenMPI unloads its plugins when it ends. What they leave behind would then be a leak without a
// name, which tools/lsan.supp cannot pass over, and each worker would end with an error.
extern "C" int dlclose(void*) { return 0; }
