# shellcheck shell=bash
# Of roster-exec, for what clap's own script does not know: users, and what is behind the command.
_roster_exec() {
    local word=${COMP_WORDS[COMP_CWORD]} before='' at=1
    COMPREPLY=()
    while ((at < COMP_CWORD)); do
        before=${COMP_WORDS[at]}
        case $before in
            --) before='' && ((++at)) && break ;;
            -*) ((++at)) ;;
            *) before='' && break ;;
        esac
        # The value of an option, in one word with it or in the next; bash has a = as a word of its own.
        case $before in
            -u | -s | --user | --socket)
                [[ ${COMP_WORDS[at]} == '=' ]] && ((++at))
                ((at >= COMP_CWORD)) && break
                before='' && ((++at))
                ;;
            *) before='' ;;
        esac
    done
    [[ $word == '=' ]] && word=''
    case $before in
        -u | --user) mapfile -t COMPREPLY < <(compgen -u -- "$word") ;;
        -s | --socket)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            ;;
        *)
            if ((at < COMP_CWORD)); then
                # As the command's own arguments, where bash-completion is there to know them.
                if declare -F _comp_command_offset >/dev/null; then
                    _comp_command_offset "$at"
                elif declare -F _command_offset >/dev/null; then
                    _command_offset "$at"
                else
                    compopt -o filenames 2>/dev/null
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                fi
            elif [[ $word == -* && ${COMP_WORDS[at - 1]} != -- ]]; then
                mapfile -t COMPREPLY < <(compgen -W '@OPTIONS@' -- "$word")
            else
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            fi
            ;;
    esac
}
complete -F _roster_exec roster-exec
