/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A plug-in that leaves a file beside itself, NAME.loaded, when a process loads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void)
{
	Dl_info self;
	char path[4096];
	if (!dladdr((void *)loaded, &self))
		return;
	snprintf(path, sizeof(path), "%s.loaded", self.dli_fname);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}
