
# The words after -- are a command of its own, and the option --set names a set of the usual file.
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
    if [[ $3 == --set ]]; then
        local file=${XDG_CONFIG_HOME:-${HOME-}/.config}/quorlock.toml
        local sets='s/^[[:space:]]*\[set\.\([A-Za-z0-9_-]*\)[].].*/\1/p'
        COMPREPLY=($(compgen -W "$(sed -n "$sets" "$file" 2> /dev/null)" -- "$2"))
        return
    fi
    _quorlock "$@"
}
complete -o bashdefault -o default -F _quorlock_words quorlock
