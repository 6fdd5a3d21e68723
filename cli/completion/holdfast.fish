# fish completion for holdfast(1)

# The words without options and their values: holdfast itself, a command, its argument
function __holdfast_words
    set -l skip 0
    for word in (commandline -opc)
        if test $skip = 1
            set skip 0
        else if contains -- $word --server --state-dir --token-file --ca --client --share --status --protocol --file --range --address --silent-for --name
            set skip 1
        else if not string match -q -- '-*' $word
            echo -- $word
        end
    end
end

function __holdfast_wants_command
    test (count (__holdfast_words)) -eq 1
end

function __holdfast_wants_argument
    set -l words (__holdfast_words)
    test (count $words) -eq 2; and contains -- $words[2] $argv
end

function __holdfast_wants_node
    set -l words (__holdfast_words)
    test (count $words) -eq 3; and test "$words[2] $words[3]" = "cluster move"
end

function __holdfast_wants_folder
    set -l words (__holdfast_words)
    test (count $words) -ge 3; and test "$words[2]" = store
end

function __holdfast_wants_exports_file
    set -l words (__holdfast_words)
    test (count $words) -eq 3; and test "$words[2]" = exports
end

# __holdfast_ask COMMAND KEY: the values, of the server that the words so far name
function __holdfast_ask
    set -l which
    set -l words (commandline -opc)
    for i in (seq (count $words))
        switch $words[$i]
            case --server --state-dir --token-file --ca
                set -a which $words[$i] $words[(math $i + 1)]
            case '--server=*' '--state-dir=*' '--token-file=*' '--ca=*' --insecure
                set -a which $words[$i]
        end
    end
    holdfast $which --json $argv[1] 2>/dev/null | string replace -rf '^ *"'$argv[2]'": "(.*)",?$' '$1'
end

complete -c holdfast -f
complete -c holdfast -n __holdfast_wants_command -a status -d "the server at a glance"
complete -c holdfast -n __holdfast_wants_command -a clients -d "the clients"
complete -c holdfast -n __holdfast_wants_command -a locks -d "the locks and their clients"
complete -c holdfast -n __holdfast_wants_command -a waiters -d "the waiters and the clients that block them"
complete -c holdfast -n __holdfast_wants_command -a reservations -d "the share reservations and their clients"
complete -c holdfast -n __holdfast_wants_command -a shares -d "the exports"
complete -c holdfast -n __holdfast_wants_command -a usage -d "which client uses which export"
complete -c holdfast -n __holdfast_wants_command -a limits -d "the limits and how much of each is used"
complete -c holdfast -n __holdfast_wants_command -a grace -d "the grace period after a restart"
complete -c holdfast -n __holdfast_wants_command -a notify -d "send SM_NOTIFY again"
complete -c holdfast -n __holdfast_wants_command -a reload -d "load the configuration again"
complete -c holdfast -n __holdfast_wants_command -a release -d "declare a client crashed"
complete -c holdfast -n __holdfast_wants_command -a cluster -d "the nodes of the cluster"
complete -c holdfast -n __holdfast_wants_command -a store -d "check, dump, copy or downgrade a store whose server is stopped"
complete -c holdfast -n __holdfast_wants_command -a exports -d "write /etc/exports as the exports of a configuration"
complete -c holdfast -n __holdfast_wants_command -a events -d "events of the server, live"
complete -c holdfast -n __holdfast_wants_command -a top -d "a live view, full screen"
complete -c holdfast -n __holdfast_wants_command -a doctor -d "check this host or a client for problems"
complete -c holdfast -n __holdfast_wants_command -a dashboard -d "the address of the dashboard"
complete -c holdfast -n "__holdfast_wants_argument clients notify release" -a "(__holdfast_ask clients id)"
complete -c holdfast -n "__holdfast_wants_argument grace" -a end
complete -c holdfast -n "__holdfast_wants_argument top" -a clients
complete -c holdfast -n "__holdfast_wants_argument cluster" -a "move take"
complete -c holdfast -n "__holdfast_wants_argument store" -a "check dump copy downgrade"
complete -c holdfast -n "__holdfast_wants_argument exports" -a import
complete -c holdfast -n __holdfast_wants_exports_file -F
complete -c holdfast -n __holdfast_wants_folder -a "(__fish_complete_directories)"
complete -c holdfast -n __holdfast_wants_node -a "(__holdfast_ask cluster name)"
complete -c holdfast -n "__holdfast_wants_argument doctor" -a "(__fish_print_hostnames)"
complete -c holdfast -l json -d "JSON, for scripts"
complete -c holdfast -l server -x -d "the API"
complete -c holdfast -l state-dir -x -a "(__fish_complete_directories)" -d "the state directory"
complete -c holdfast -l token-file -r -F -d "the token"
complete -c holdfast -l ca -r -F -d "the CA of the API"
complete -c holdfast -l insecure -d "do not check the certificate of the API"
complete -c holdfast -l client -x -a "(__holdfast_ask clients id)" -d "only of this client"
complete -c holdfast -l share -x -a "(__holdfast_ask shares name)" -d "only in this export"
complete -c holdfast -l status -x -a "active notified unreachable crashed" -d "only these clients"
complete -c holdfast -l protocol -x -a "nlm nsm" -d "only these clients"
complete -c holdfast -l file -x -a "(__holdfast_ask locks file)" -d "release only locks in this file"
complete -c holdfast -l range -x -d "release only this lock"
complete -c holdfast -l address -x -a "(__holdfast_ask clients address)" -d "release the clients of this address"
complete -c holdfast -l silent-for -x -d "release clients that were silent for so long"
complete -c holdfast -l name -x -d "the name of the server in a database"
complete -c holdfast -l yes -d "do not ask"
complete -c holdfast -l no-wait -d "do not wait for the result"
complete -c holdfast -l once -d "print once"
complete -c holdfast -l help -d "print the usage"
complete -c holdfast -l version -d "print the version"
