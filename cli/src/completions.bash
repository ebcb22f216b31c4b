
# The words after -- are a command of its own, and the option --profile names a profile of the usual file.
_quorlock_words() {
    local word
    for ((word = 1; word < COMP_CWORD; word++)); do
        [[ ${COMP_WORDS[word]} == -- ]] || continue
        if declare -F _command_offset > /dev/null; then
            _command_offset $((word + 1))
        elif ((word + 1 == COMP_CWORD)); then
            COMPREPLY=($(compgen -c -- "$2"))
        else
            COMPREPLY=()
        fi
        return
    done
    if [[ $3 == --profile ]]; then
        local file=${XDG_CONFIG_HOME:-${HOME-}/.config}/quorlock.toml
        local profiles='s/^[[:space:]]*\[profile\.\([A-Za-z0-9_-]*\)[].].*/\1/p'
        COMPREPLY=($(compgen -W "$(sed -n "$profiles" "$file" 2> /dev/null)" -- "$2"))
        return
    fi
    _quorlock "$@"
}
complete -o bashdefault -o default -F _quorlock_words quorlock
