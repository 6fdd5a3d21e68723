/*
 * The server as a whole: builds the objects in the order of their dependencies,
 * gives each the ones it needs, and frees them in reverse.
 *
 *	main.c, args.c   the program and its command line
 *	options.c        the table of options, from which the parser, --print-config and a manual come
 *	config*.c        the configuration: YAML, values, checks, messages, printing
 *	daemon.c         builds, runs and frees the objects
 *	setup.c          translates the configuration into options of other parts
 *	files.c          exports, file threads, NFS and MOUNT; call_log.c: what is written about their calls
 *	operator.c       the API; listen.c: the sockets of RPC; loop_threads.c: the further loops
 *	standby.c        the process while another node serves
 *	cluster_node.c   this process as a node of a cluster
 *	reload.c         SIGHUP; certificates.c: loads the certificates
 *	state_dir.c      the state directory; ports_file.c: the ports in it; port_check.c: --check-ports
 *	process.c        user and limits; sandbox.c: capabilities and system calls
 *	manager.c        the service manager
 */
#pragma once

struct hf_args;
struct hf_config;

/* Runs until told to stop. Takes over the configuration. Returns the exit status of the process; errors are
 * in the log. */
int hf_daemon_run(struct hf_config *config, const struct hf_args *args);
