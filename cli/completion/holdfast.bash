# bash completion for holdfast(1)

_holdfast_ids() {
	holdfast --json clients 2>/dev/null | sed -n 's/^ *"id": "\(.*\)",\{0,1\}$/\1/p'
}

_holdfast() {
	local cur prev words cword command='' word
	_init_completion -n : || return
	for word in "${words[@]:1:cword-1}"; do
		case $word in
		status | clients | locks | waiters | shares | grace | notify | release | events | top | doctor | dashboard)
			command=$word
			;;
		esac
	done
	case $prev in
	--state-dir) _filedir -d; return ;;
	--token-file) _filedir; return ;;
	--status) mapfile -t COMPREPLY < <(compgen -W 'active notified unreachable crashed' -- "$cur"); return ;;
	--protocol) mapfile -t COMPREPLY < <(compgen -W 'nlm nsm' -- "$cur"); return ;;
	--client)
		mapfile -t COMPREPLY < <(compgen -W "$(_holdfast_ids)" -- "$cur")
		__ltrim_colon_completions "$cur"
		return
		;;
	--server | --share) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W '--json --server --state-dir --token-file --client --share --status
			--protocol --yes --help --version' -- "$cur")
		return
	fi
	case $command in
	'') mapfile -t COMPREPLY < <(compgen -W 'status clients locks waiters shares grace notify release events top
		doctor dashboard' -- "$cur") ;;
	clients | notify | release)
		mapfile -t COMPREPLY < <(compgen -W "$(_holdfast_ids)" -- "$cur")
		__ltrim_colon_completions "$cur"
		;;
	grace) mapfile -t COMPREPLY < <(compgen -W 'end' -- "$cur") ;;
	doctor) _known_hosts_real -- "$cur" ;;
	esac
}

complete -F _holdfast holdfast
