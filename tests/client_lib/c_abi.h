#ifndef TERN_TESTS_C_ABI_H
#define TERN_TESTS_C_ABI_H

#ifdef __cplusplus
extern "C" {
#endif

/* Uses every function of tern.h against the daemon at the path. 0, or the line that failed. */
int tern_c_abi_run(const char* socket_path);

#ifdef __cplusplus
}
#endif

#endif
