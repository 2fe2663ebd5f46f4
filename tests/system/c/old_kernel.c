/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Executes a command that has the system calls of Linux 4.10 only: statx and all later ones fail with ENOSYS.
 *
 *     old_kernel COMMAND [ARGUMENT…]
 *
 * Needs root. It does not set no_new_privs, because the command may run set-uid programs.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* The numbers of later calls are higher, on each processor. */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_statx, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    if (argc < 2) {
        fputs("usage: old_kernel COMMAND [ARGUMENT...]\n", stderr);
        return 64;
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("old_kernel: seccomp");
        return 2;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
