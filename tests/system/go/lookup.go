// Looks a user up through cgo's os/user, which calls the C library.
package main

/*
#include <pwd.h>
*/
import "C"

import (
	"fmt"
	"os"
	"os/user"
)

func main() {
	u, err := user.Lookup(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	gids, err := u.GroupIds()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print(u.Username, ":", u.Uid, ":", u.Gid, ":", u.Name, ":", u.HomeDir)
	for _, gid := range gids {
		g, err := user.LookupGroupId(gid)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Print(" ", g.Name)
	}
	fmt.Println()
}
