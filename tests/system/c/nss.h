/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The functions of an NSS module, taken straight from the shared object: what glibc would call,
 * without glibc's own caching, retries and fall-backs in between. */
#ifndef ROSTER_TESTS_NSS_H
#define ROSTER_TESTS_NSS_H

#include <dlfcn.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <shadow.h>
#include <stdio.h>
#include <stdlib.h>

struct nss {
    enum nss_status (*getpwnam_r)(const char *, struct passwd *, char *, size_t, int *);
    enum nss_status (*getpwuid_r)(uid_t, struct passwd *, char *, size_t, int *);
    enum nss_status (*getgrnam_r)(const char *, struct group *, char *, size_t, int *);
    enum nss_status (*getgrgid_r)(gid_t, struct group *, char *, size_t, int *);
    enum nss_status (*getspnam_r)(const char *, struct spwd *, char *, size_t, int *);
    enum nss_status (*initgroups_dyn)(const char *, gid_t, long *, long *, gid_t **, long, int *);
    enum nss_status (*setpwent)(int), (*setgrent)(int), (*setspent)(int);
    enum nss_status (*endpwent)(void), (*endgrent)(void), (*endspent)(void);
    enum nss_status (*getpwent_r)(struct passwd *, char *, size_t, int *);
    enum nss_status (*getgrent_r)(struct group *, char *, size_t, int *);
    enum nss_status (*getspent_r)(struct spwd *, char *, size_t, int *);
};

static inline void *nss_symbol(void *library, const char *service, const char *function)
{
    char name[64];
    snprintf(name, sizeof name, "_nss_%s_%s", service, function);
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return symbol;
}

/* `files` lives in libc itself. */
static inline struct nss nss_load(const char *service)
{
    char file[64];
    snprintf(file, sizeof file, "libnss_%s.so.2", service);
    void *library = dlopen(service[0] == 'f' ? "libc.so.6" : file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    return (struct nss){
#define FUNCTION(name) .name = nss_symbol(library, service, #name)
        FUNCTION(getpwnam_r), FUNCTION(getpwuid_r), FUNCTION(getgrnam_r), FUNCTION(getgrgid_r),
        FUNCTION(getspnam_r), FUNCTION(initgroups_dyn),
        FUNCTION(setpwent), FUNCTION(setgrent), FUNCTION(setspent),
        FUNCTION(endpwent), FUNCTION(endgrent), FUNCTION(endspent),
        FUNCTION(getpwent_r), FUNCTION(getgrent_r), FUNCTION(getspent_r),
#undef FUNCTION
    };
}

#endif
