# fish completion for holdfast(1)
set -l commands status clients locks waiters shares grace notify release events top doctor dashboard

function __holdfast_ids
    holdfast --json clients 2>/dev/null | string replace -rf '^ *"id": "(.*)",?$' '$1'
end

complete -c holdfast -f
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c holdfast -n "__fish_seen_subcommand_from clients notify release" -a "(__holdfast_ids)"
complete -c holdfast -n "__fish_seen_subcommand_from grace" -a end
complete -c holdfast -n "__fish_seen_subcommand_from doctor" -a "(__fish_print_hostnames)"
complete -c holdfast -l json -d "JSON, for scripts"
complete -c holdfast -l server -x -d "the API"
complete -c holdfast -l state-dir -x -a "(__fish_complete_directories)" -d "the state directory"
complete -c holdfast -l token-file -r -F -d "the token"
complete -c holdfast -l client -x -a "(__holdfast_ids)" -d "only of this client"
complete -c holdfast -l share -x -d "only in this share"
complete -c holdfast -l status -x -a "active notified unreachable crashed" -d "only these clients"
complete -c holdfast -l protocol -x -a "nlm nsm" -d "only these clients"
complete -c holdfast -l yes -d "do not ask"
complete -c holdfast -l help
complete -c holdfast -l version
