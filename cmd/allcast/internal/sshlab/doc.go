package sshlab
